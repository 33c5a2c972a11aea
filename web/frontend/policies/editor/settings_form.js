/* The form's controls: values, live values, and visibility. */

import { count } from '../../shell/format.js';
import { byId, find, findAll, required, setText } from '../../shell/element.js';
import { ON, pieceOfText, rangeProblem, sameText, textOfValue, valueAt } from './field_values.js';

/** Return the active settings, without those of rules that are not selected. */
export function settings() {
  return findAll(document, '#settings .setting').filter((setting) => !setting.closest('.rule[hidden]'));
}

/**
 * Return the setting's control.
 * @param {ParentNode} setting
 * @returns {HTMLInputElement | HTMLSelectElement}
 */
export function controlOf(setting) {
  return (
    find(setting, '.control select', HTMLSelectElement) ??
    required(setting, '.control input:not([type="hidden"])', HTMLInputElement)
  );
}

/**
 * Return the value of the control.
 * @param {HTMLElement} setting
 */
export function textOf(setting) {
  const control = controlOf(setting);
  if (control instanceof HTMLInputElement && control.type === 'checkbox') return control.checked ? ON : '';
  return control.value;
}

/**
 * @param {HTMLElement} setting
 * @param {string} text
 */
function setControl(setting, text) {
  const control = controlOf(setting);
  if (control instanceof HTMLInputElement && control.type === 'checkbox') control.checked = text === ON;
  else if (control instanceof HTMLSelectElement) {
    if (![...control.options].some((option) => option.value === text))
      control.add(new Option(text || `default: ${setting.dataset.default}`, text));
    control.value = text;
  } else if (control.value !== text) {
    control.value = text;
  }
}

/**
 * Show the values of a document typed as JSON.
 * @param {unknown} value
 */
export function fillFrom(value) {
  for (const stage of findAll(document, '[data-stage]')) {
    const rule = required(stage, '.setting');
    // A missing stage has its default rule; one without a name has none.
    const absent = valueAt(value, stage.dataset.stage ?? '') === undefined;
    const name = absent ? rule.dataset.default : valueAt(value, `${stage.dataset.stage}.name`);
    setControl(rule, typeof name === 'string' ? name : '');
    chooseRule(stage);
  }
  for (const setting of settings()) {
    if (setting.dataset.kind === 'choice') continue;
    const { path = '', kind = '' } = setting.dataset;
    const stored = valueAt(value, path);
    // A switch cannot be empty, so it shows the default that applies.
    const text =
      stored === undefined && kind === 'switch' ? (setting.dataset.default ?? '') : textOfValue(stored, kind);
    // A control with an equal value keeps its text: 5.0 does not become 5 while typing.
    if (sameText(textOf(setting), text, kind)) continue;
    setControl(setting, text);
    showRange(setting);
  }
}

/**
 * Enable the parameters of the selected rule and disable those of the others.
 * @param {HTMLElement} stage
 */
export function chooseRule(stage) {
  const name = textOf(required(stage, '.setting'));
  for (const rule of findAll(stage, '.rule', HTMLFieldSetElement)) {
    rule.hidden = rule.dataset.rule !== name;
    rule.disabled = rule.hidden;
  }
}

/**
 * Return the parameters of the selected rule from its controls; none for an unknown rule.
 * @param {HTMLElement} stage
 */
export function parametersOf(stage) {
  /** @type {Record<string, unknown>} */
  const params = {};
  for (const setting of findAll(stage, '.rule:not([hidden]) .setting')) {
    const piece = pieceOfText(textOf(setting), setting.dataset.kind ?? '');
    if (piece !== null) params[setting.dataset.path?.split('.').at(-1) ?? ''] = JSON.parse(piece);
  }
  return params;
}

/**
 * Set a control back to the live version, or to its default if that has none.
 * @param {HTMLElement} setting
 */
export function reset(setting) {
  setControl(setting, setting.dataset.live || setting.dataset.default || '');
}

/**
 * Show at the setting that its number is outside the allowed range, or remove the message about its earlier value.
 * @param {HTMLElement} setting
 */
export function showRange(setting) {
  const problem = rangeProblem(textOf(setting), setting.dataset);
  setting.classList.toggle('wrong', Boolean(problem));
  controlOf(setting).setAttribute('aria-invalid', String(Boolean(problem)));
  setText(required(setting, '.setting-error'), problem);
}

/** Mark the settings that differ from the live version and return their number. */
export function markChanges() {
  let changed = 0;
  for (const setting of settings()) {
    const { live = '', kind = '' } = setting.dataset;
    const text = textOf(setting) || (kind === 'switch' ? '' : (setting.dataset.default ?? ''));
    const differs = !sameText(text, live, kind);
    // Another rule with its parameters is one change, as in the diff's summary.
    const stage = setting.closest('.rule')?.closest('[data-stage]');
    if (differs && !(stage && required(stage, '.setting').classList.contains('changed'))) changed += 1;
    setting.classList.toggle('changed', differs);
    required(setting, '.was').hidden = !differs;
    required(setting, '.reset').hidden = !differs || controlOf(setting).disabled;
  }
  return changed;
}

/**
 * Show all settings, or only the changed ones with their neighbours and those with errors.
 * @param {string} view
 */
export function showView(view) {
  const all = settings();
  const changed = all.filter((setting) => setting.matches('.changed, .wrong'));
  const near = new Set();
  for (const group of findAll(document, '.setting-group')) {
    const inside = all.filter((setting) => group.contains(setting));
    const wanted = changed.some((setting) => group.contains(setting));
    if (wanted) for (const setting of inside) near.add(setting);
    group.hidden = view === 'near' && !wanted;
  }
  setText(byId('near-count'), `, ${changed.length}`);
  for (const button of findAll(document, '#form-views [data-view]')) {
    button.setAttribute('aria-pressed', String(button.dataset.view === view));
  }
  const hidden = view === 'near' ? all.length - near.size : 0;
  byId('form-foot').hidden = hidden === 0;
  const words = near.size ? `${count(hidden, 'unchanged setting')} hidden.` : 'No changes from the live version yet.';
  setText(required(byId('form-foot'), ':first-child'), words);
}

/**
 * Hide the settings whose title, help and path do not contain every word; return how many match.
 * @param {string} text
 */
export function filterSettings(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  let matching = 0;
  for (const group of findAll(document, '.setting-group')) {
    let inside = 0;
    for (const setting of findAll(group, '.setting')) {
      const help = find(setting, '.help')?.textContent ?? '';
      const said = `${required(setting, 'label').textContent} ${help} ${setting.dataset.path}`.toLowerCase();
      const wanted = words.every((word) => said.includes(word));
      setting.classList.toggle('unmatched', !wanted);
      if (wanted && !setting.closest('.rule[hidden]')) inside += 1;
    }
    group.classList.toggle('unmatched', !inside);
    matching += inside;
  }
  return matching;
}

/** Start the box that filters the settings, and the index of sections. */
export function startFind() {
  const box = byId('setting-find', HTMLInputElement);
  const index = byId('setting-index', HTMLDetailsElement);
  const filter = () => {
    const matching = filterSettings(box.value);
    setText(byId('setting-found'), box.value.trim() ? count(matching, 'setting') : '');
  };
  box.hidden = false;
  box.addEventListener('input', filter);
  box.addEventListener('keydown', (event) => {
    // The form around it would validate.
    if (event.key === 'Enter') event.preventDefault();
    if (event.key !== 'Escape') return;
    box.value = '';
    filter();
  });
  required(index, 'nav').addEventListener('click', () => {
    box.value = '';
    filter();
    index.open = false;
  });
}

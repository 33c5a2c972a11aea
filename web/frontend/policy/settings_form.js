/* The form's controls: what they say, what was there before, and which of them are in view. */

import { count } from '../figures/format.js';
import { byId, setText } from '../page/element.js';
import { ON, pieceOfText, sameText, textOfValue, valueAt } from './field_values.js';

/** Every setting in force: those of rules that are not chosen are out of it. */
export function settings() {
  return [...document.querySelectorAll('#settings .setting')].filter((each) => !each.closest('.rule[hidden]'));
}

/** The setting's control. */
export function controlOf(setting) {
  return setting.querySelector('.control select, .control input:not([type="hidden"])');
}

/** What the control says. */
export function textOf(setting) {
  const control = controlOf(setting);
  if (control.type === 'checkbox') return control.checked ? ON : '';
  return control.value;
}

function setControl(setting, text) {
  const control = controlOf(setting);
  if (control.type === 'checkbox') control.checked = text === ON;
  else if (control.tagName === 'SELECT') {
    if (![...control.options].some((option) => option.value === text)) control.add(new Option(text || `default: ${setting.dataset.default}`, text));
    control.value = text;
  } else if (control.value !== text) control.value = text;
}

/** Show the values of a document that was typed as JSON. */
export function fillFrom(value) {
  for (const stage of document.querySelectorAll('[data-stage]')) {
    const rule = stage.querySelector('.setting');
    // A stage that is left out means its default rule; one without a name means none.
    const absent = valueAt(value, stage.dataset.stage) === undefined;
    const name = absent ? rule.dataset.default : valueAt(value, `${stage.dataset.stage}.name`);
    setControl(rule, typeof name === 'string' ? name : '');
    chooseRule(stage);
  }
  for (const setting of settings()) {
    if (setting.dataset.kind === 'choice') continue;
    const { path, kind } = setting.dataset;
    const found = valueAt(value, path);
    // A switch cannot be empty, so it shows the default that applies where the JSON says nothing.
    const text = found === undefined && kind === 'switch' ? setting.dataset.default : textOfValue(found, kind);
    // A control that already means this keeps its own spelling: nobody's 5.0 turns into 5 under the cursor.
    if (!sameText(textOf(setting), text, kind)) setControl(setting, text);
  }
}

/** Bring the parameters of the chosen rule into force, those of the others out of it. */
export function chooseRule(stage) {
  const name = textOf(stage.querySelector('.setting'));
  for (const rule of stage.querySelectorAll('.rule')) {
    rule.hidden = rule.dataset.rule !== name;
    rule.disabled = rule.hidden;
  }
}

/** The parameters that the chosen rule's controls say, as values; for a name no rule has, none. */
export function parametersOf(stage) {
  const params = {};
  for (const setting of stage.querySelectorAll('.rule:not([hidden]) .setting')) {
    const piece = pieceOfText(textOf(setting), setting.dataset.kind);
    if (piece !== null) params[setting.dataset.path.split('.').at(-1)] = JSON.parse(piece);
  }
  return params;
}

/** Set a control back to the live version, or to its default where that has none. */
export function reset(setting) {
  setControl(setting, setting.dataset.live || setting.dataset.default);
}

/** Mark what differs from the live version and return how many places do. */
export function markChanges() {
  let changed = 0;
  for (const setting of settings()) {
    const { live, kind } = setting.dataset;
    const text = textOf(setting) || (kind === 'switch' ? '' : setting.dataset.default);
    const differs = !sameText(text, live, kind);
    // Another rule with its parameters is one change, as in the diff's summary.
    const stage = setting.closest('.rule')?.closest('[data-stage]');
    changed += differs && !stage?.querySelector('.setting').classList.contains('changed');
    setting.classList.toggle('changed', differs);
    setting.querySelector('.was').hidden = !differs;
    setting.querySelector('.reset').hidden = !differs || controlOf(setting).disabled;
  }
  return changed;
}

/** Show all settings, or only the changed ones with their neighbours and those with errors. */
export function showView(view) {
  const all = settings();
  const near = new Set();
  for (const group of document.querySelectorAll('.setting-group')) {
    const inside = all.filter((setting) => group.contains(setting));
    const wanted = inside.filter((setting) => setting.matches('.changed, .wrong'));
    if (wanted.length) for (const setting of inside) near.add(setting);
    group.hidden = view === 'near' && !wanted.length;
  }
  setText(byId('near-count'), `, ${near.size}`);
  for (const button of document.querySelectorAll('#form-views [data-view]')) {
    button.setAttribute('aria-pressed', String(button.dataset.view === view));
  }
  const hidden = view === 'near' ? all.length - near.size : 0;
  byId('form-foot').hidden = hidden === 0;
  const words = near.size ? `${count(hidden, 'unchanged setting')} hidden.` : 'Nothing differs from the live version yet.';
  setText(byId('form-foot').firstElementChild, words);
}

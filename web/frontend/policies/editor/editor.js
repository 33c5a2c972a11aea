/* The editor's page: form and JSON stay in sync, the server validates, and typed text is kept. */

import { find, byId, closest, findAll, required, setText } from '../../shell/element.js';
import { clock, zoneName } from '../../shell/format.js';
import { fetchCheck, forgetVerdict, problems, showDiff, showVerdict } from './check.js';
import { pieceOfText } from './field_values.js';
import { nodeAt, readJson, withPiece, withValue } from './json_text.js';
import { dropText, keepText, keptText, markSubmitted, settleSubmitted } from './kept_text.js';
import {
  chooseRule,
  controlOf,
  fillFrom,
  markChanges,
  parametersOf,
  reset,
  settings,
  showRange,
  showView,
  startFind,
  textOf,
} from './settings_form.js';
import { showSteps } from './steps.js';
/** @import { KeyActions } from '../keys.js' */
/** @import { startCodeEditor } from './code_editor.js' */
/** @import { JsonError } from './json_text.js' */
/** @import { Who } from './kept_text.js' */

const REST_MS = 400;

/**
 * Start the editor; returns the actions of its keys.
 * @param {HTMLElement} page
 * @returns {KeyActions}
 */
export function startEditor(page) {
  const form = byId('policy-form', HTMLFormElement);
  const area = byId('document', HTMLTextAreaElement);
  const message = find(document, '#message', HTMLTextAreaElement);
  const { user = '', slug = '', draft = '' } = page.dataset;
  const who = { user, slug, draft };
  /** @type {ReturnType<typeof startCodeEditor> | null} */
  let code = null;
  /** @type {JsonError | null} */
  let unreadable = null;
  const opened = { text: area.value, message: message?.value ?? '' };
  const verdict = () => byId('check-verdict').dataset;
  const state = { view: 'all', changes: 0, checked: 'checked' in page.dataset };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {AbortController | null} */
  let asking = null;

  const refresh = () => {
    state.changes = markChanges();
    showView(state.view);
    if (!message) return;
    showSteps({
      changes: state.changes,
      checked: state.checked,
      problems: Number(verdict().problems),
      notes: Number(verdict().notes),
      live: page.dataset.live ?? '',
    });
  };
  const keep = () => {
    if (!message) return;
    keepText(
      localStorage,
      who,
      { text: area.value, message: message.value, base: byId('base', HTMLInputElement).value },
      Date.now(),
    );
    setText(required(byId('status-saved'), ':first-child'), 'Not saved; kept in this browser');
  };
  const edited = () => {
    state.checked = false;
    forgetVerdict();
    refresh();
    drawCode();
    keep();
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (!byId('diff-pane').hidden) ask(false);
    }, REST_MS);
  };
  const problemRanges = () =>
    (state.checked ? problems() : []).flatMap(({ path, message: said }) => {
      const node = nodeAt(area.value, path.split('.'));
      return node ? [{ from: node.offset, to: node.offset + node.length, message: said }] : [];
    });
  const drawCode = () => {
    code?.draw();
    code?.mark(
      unreadable ? [{ from: unreadable.at, to: unreadable.at, message: unreadable.message }] : problemRanges(),
    );
  };
  const readText = () => {
    const { value, error } = readJson(area.value);
    unreadable = error;
    setText(
      byId('json-problem'),
      error
        ? `Line ${error.line}, column ${error.column}: ${error.message}. ` +
            'The form keeps the last values that could be read.'
        : '',
    );
    return value;
  };
  const fromJson = () => {
    const value = readText();
    if (!unreadable) fillFrom(value);
    edited();
  };
  /** @param {HTMLElement} setting */
  const fromForm = (setting) => {
    area.value = textWith(area.value, setting);
    showRange(setting);
    readText();
    edited();
  };
  /** @param {boolean} asked */
  async function ask(asked) {
    asking?.abort();
    asking = new AbortController();
    try {
      const answer = await fetchCheck(form, page.dataset.check ?? '', asking.signal);
      showDiff(answer);
      if (!asked) return;
      showVerdict(answer);
      state.checked = true;
      refresh();
      drawCode();
    } catch (error) {
      if (asked && !(error instanceof DOMException && error.name === 'AbortError'))
        form.requestSubmit(byId('validate'));
    }
  }
  /** @param {string} wanted */
  const showJson = (wanted) => {
    byId('diff-pane').hidden = wanted !== 'diff';
    byId('edit-pane').hidden = wanted !== 'edit';
    for (const button of findAll(document, '#json-views [data-json]')) {
      button.setAttribute('aria-pressed', String(button.dataset.json === wanted));
    }
    if (wanted === 'diff' && message) ask(false);
  };

  settleSubmitted(localStorage, who);
  const restored = restore({ page, area, message, who, opened, fromJson });
  area.addEventListener('input', fromJson);
  message?.addEventListener('input', keep);
  byId('settings').addEventListener('input', (event) => {
    const setting = closest(event, '.setting');
    if (setting) fromForm(setting);
  });
  byId('settings').addEventListener('click', (event) => {
    const setting = closest(event, '.reset') && closest(event, '.setting');
    if (!setting) return;
    reset(setting);
    fromForm(setting);
    controlOf(setting).focus();
  });
  for (const button of findAll(document, '[data-view]')) {
    button.addEventListener('click', () => {
      state.view = button.dataset.view ?? 'all';
      showView(state.view);
    });
  }
  for (const button of findAll(document, '[data-json]'))
    button.addEventListener('click', () => showJson(button.dataset.json ?? ''));
  document.getElementById('validate')?.addEventListener('click', (event) => {
    event.preventDefault();
    ask(true);
  });
  document.getElementById('discard')?.addEventListener('click', () => dropText(localStorage, who));
  form.addEventListener('submit', () => markSubmitted(localStorage, who));
  byId('form-views').hidden = false;
  startFind();
  byId('json-views').hidden = false;
  refresh();
  showJson(page.dataset.draft && !restored && !('typed' in page.dataset) ? 'diff' : 'edit');
  document.getElementById('error-summary')?.focus();
  // Until the editor is loaded, and where it cannot be, the text area serves.
  import('./code_editor.js').then(({ startCodeEditor: start }) => {
    code = start(byId('edit-pane'), area);
    drawCode();
  });
  return {
    validate: message ? () => ask(true) : undefined,
    toggleDiff: () => showJson(byId('diff-pane').hidden ? 'diff' : 'edit'),
    step,
  };
}

/**
 * Return the JSON text with the value of one setting; a rule includes its parameters.
 * @param {string} text
 * @param {HTMLElement} setting
 */
function textWith(text, setting) {
  const { path = '', kind = '' } = setting.dataset;
  const stage = kind === 'choice' ? setting.closest('[data-stage]') : null;
  if (stage instanceof HTMLElement) {
    chooseRule(stage);
    const named = withValue(text, path.split('.'), textOf(setting));
    return withValue(named, [stage.dataset.stage ?? '', 'params'], parametersOf(stage));
  }
  const piece = pieceOfText(textOf(setting), kind);
  return piece === null ? withValue(text, path.split('.'), undefined) : withPiece(text, path.split('.'), piece);
}

/**
 * @typedef {object} Restoring
 * @property {HTMLElement} page
 * @property {HTMLTextAreaElement} area
 * @property {HTMLTextAreaElement | null} message
 * @property {Who} who
 * @property {{ text: string, message: string }} opened
 * @property {() => void} fromJson
 */

/**
 * Restore text typed before a reload if it differs from the page; return whether it did.
 * @param {Restoring} parts
 */
function restore({ page, area, message, who, opened, fromJson }) {
  const kept = keptText(localStorage, who);
  if (!kept || !message) return false;
  if ((kept.text === area.value && kept.message === message.value) || 'typed' in page.dataset) {
    dropText(localStorage, who);
    return false;
  }
  const base = byId('base', HTMLInputElement).value;
  area.value = kept.text;
  message.value = kept.message;
  byId('base', HTMLInputElement).value = kept.base ?? base;
  fromJson();
  const notice = byId('kept-notice');
  const at = clock((kept.at ?? Date.now()) / 1000);
  setText(
    required(notice, 'span'),
    `Restored the text that you typed until ${at} ${zoneName()}. It is stored in this browser, not as a draft.`,
  );
  notice.hidden = false;
  byId('drop-kept').addEventListener('click', () => {
    dropText(localStorage, who);
    area.value = opened.text;
    message.value = opened.message;
    byId('base', HTMLInputElement).value = base;
    fromJson();
    dropText(localStorage, who);
    notice.hidden = true;
  });
  return true;
}

/**
 * Go to the next or previous change: in the diff if open, else in the form.
 * @param {number} by
 */
function step(by) {
  const inDiff = !byId('diff-pane').hidden;
  const stops = inDiff
    ? findAll(document, '#diff .diff-line.added, #diff .diff-line.removed')
    : settings().filter((setting) => setting.matches('.changed'));
  if (!stops.length) return;
  const now = stops.findIndex((stop) => stop.classList.contains('stop'));
  const next = stops[now < 0 && by < 0 ? stops.length - 1 : (now + by + stops.length) % stops.length];
  stops[now]?.classList.remove('stop');
  next.classList.add('stop');
  next.scrollIntoView({ block: 'center' });
  if (!inDiff) required(next, 'label').scrollIntoView({ block: 'center' });
}

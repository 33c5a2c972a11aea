/* What a control says, as a value of the document, and back. The server reads the form by the same rules. */

const NUMBER = /^\s*-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?\s*$/;
export const ON = 'on';

/**
 * A control's text as a piece of JSON; null for an empty one, which is left out of the document.
 * @param {string} text
 * @param {string} kind
 */
export function pieceOfText(text, kind) {
  if (kind === 'switch') return text === ON ? 'true' : 'false';
  if (kind === 'text' || kind === 'choice') return JSON.stringify(text);
  if (!text.trim()) return null;
  return NUMBER.test(text) ? text.trim() : JSON.stringify(text.trim());
}

/**
 * A value of the document as the text of its control; empty where the document has none.
 * @param {unknown} value
 * @param {string} kind
 */
export function textOfValue(value, kind) {
  if (value === undefined) return '';
  if (kind === 'switch' && typeof value === 'boolean') return value ? ON : '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * Whether a control says what the live version says: 8 and 8.0 are the same number.
 * @param {string} text
 * @param {string} live
 * @param {string} kind
 */
export function sameText(text, live, kind) {
  if (text === live) return true;
  if (kind !== 'number' && kind !== 'whole') return false;
  return NUMBER.test(text) && NUMBER.test(live) && Number(text) === Number(live);
}

/**
 * The value at a dotted path of a document; undefined where it has none.
 * @param {unknown} value
 * @param {string} path
 */
export function valueAt(value, path) {
  let current = value;
  for (const name of path.split('.')) {
    if (current === null || typeof current !== 'object' || !Object.hasOwn(current, name)) return undefined;
    current = /** @type {Record<string, unknown>} */ (current)[name];
  }
  return current;
}

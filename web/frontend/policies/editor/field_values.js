/* Converts between control texts and document values. The server parses the form by the same rules. */

const NUMBER = /^\s*-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?\s*$/;
export const ON = 'on';

/**
 * Return a control's text as JSON; null for an empty one, which is omitted from the document.
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
 * Return why the server will reject a typed number, with the allowed range; empty if it is allowed or omitted.
 * @param {string} text
 * @param {DOMStringMap} setting the bounds, which the server writes beside the control
 */
export function rangeProblem(text, { kind, low, high, aboveLow, belowHigh, range }) {
  if ((kind !== 'number' && kind !== 'whole') || !text.trim()) return '';
  const allowed = range ? ` Allowed: ${range}.` : '';
  if (!NUMBER.test(text)) return `${text.trim()} is not a number.${allowed}`;
  const value = Number(text);
  if (kind === 'whole' && !Number.isInteger(value)) return `${text.trim()} is not a whole number.${allowed}`;
  if (low && (value < Number(low) || (aboveLow !== undefined && value === Number(low))))
    return `${text.trim()} is too low.${allowed}`;
  if (high && (value > Number(high) || (belowHigh !== undefined && value === Number(high))))
    return `${text.trim()} is too high.${allowed}`;
  return '';
}

/**
 * Return a document value as the text of its control; empty for none.
 * @param {unknown} value
 * @param {string} kind
 */
export function textOfValue(value, kind) {
  if (value === undefined) return '';
  if (kind === 'switch' && typeof value === 'boolean') return value ? ON : '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

/**
 * Return whether a control equals the live version: 8 and 8.0 are the same number.
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
 * Return the value at a dotted path of a document; undefined for none.
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

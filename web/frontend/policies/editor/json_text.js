/* The JSON text of a policy: its value or its first error, and edits of one value that keep the rest of the text. */
import { ParseErrorCode, applyEdits, findNodeAtLocation, modify, parseTree } from 'jsonc-parser';
/** @import { Node, ParseError } from 'jsonc-parser' */

/** @typedef {{ at: number, line: number, column: number, message: string }} JsonError offset; line, column from 1 */

const OPTIONS = { formattingOptions: { insertSpaces: true, tabSize: 2 } };
const MESSAGES = {
  [ParseErrorCode.InvalidSymbol]: 'expected a value',
  [ParseErrorCode.InvalidNumberFormat]: 'not a number',
  [ParseErrorCode.PropertyNameExpected]: 'expected a name in quotes',
  [ParseErrorCode.ValueExpected]: 'expected a value',
  [ParseErrorCode.ColonExpected]: 'expected a colon',
  [ParseErrorCode.CommaExpected]: 'expected a comma',
  [ParseErrorCode.CloseBraceExpected]: 'expected a comma or }',
  [ParseErrorCode.CloseBracketExpected]: 'expected a comma or ]',
  [ParseErrorCode.EndOfFileExpected]: 'extra text after the end of the document',
  [ParseErrorCode.InvalidCommentToken]: 'JSON has no comments',
  [ParseErrorCode.UnexpectedEndOfComment]: 'JSON has no comments',
  [ParseErrorCode.UnexpectedEndOfString]: 'unterminated string',
  [ParseErrorCode.UnexpectedEndOfNumber]: 'not a number',
  [ParseErrorCode.InvalidUnicode]: 'a character that needs a backslash',
  [ParseErrorCode.InvalidEscapeCharacter]: 'a backslash before a character that needs none',
  [ParseErrorCode.InvalidCharacter]: 'a character that needs a backslash',
};

/**
 * Return the value, or, for a text that the server would reject as JSON, its first error.
 * @param {string} text
 * @returns {{ value: unknown, error: JsonError | null }}
 */
export function readJson(text) {
  /** @type {ParseError[]} */
  const errors = [];
  try {
    const root = parseTree(text, errors, { disallowComments: true });
    const value = JSON.parse(text);
    const twice = root && repeatedName(root);
    if (!twice) return { value, error: null };
    return { value: undefined, error: errorAt(text, twice.offset, `${JSON.stringify(twice.value)} appears twice`) };
  } catch (error) {
    if (error instanceof RangeError) return { value: undefined, error: errorAt(text, 0, 'nested too deeply') };
    const [first] = errors;
    const message = first ? MESSAGES[first.error] : 'not valid JSON';
    return { value: undefined, error: errorAt(text, first?.offset ?? 0, message) };
  }
}

/**
 * Return the text with the JSON `piece` at the path; missing objects are created.
 * @param {string} text
 * @param {string[]} path
 * @param {string} piece
 */
export function withPiece(text, path, piece) {
  // The library writes numbers its own way, so the piece replaces a placeholder: 8.0 stays as typed.
  const holding = nodeAt(text, path) ? text : withValue(text, path, null);
  const node = nodeAt(holding, path);
  return node ? holding.slice(0, node.offset) + piece + holding.slice(node.offset + node.length) : text;
}

/**
 * Return the text with the value at the path, or without its entry for undefined. Invalid JSON is left unchanged.
 * @param {string} text
 * @param {string[]} path
 * @param {unknown} value
 */
export function withValue(text, path, value) {
  return readJson(text).error ? text : applyEdits(text, modify(text, path, value, OPTIONS));
}

/**
 * Return the node of the value at the path; undefined for none, or for invalid JSON.
 * @param {string} text
 * @param {string[]} path
 */
export function nodeAt(text, path) {
  const root = readJson(text).error ? undefined : parseTree(text);
  return root && findNodeAtLocation(root, path);
}

/**
 * Return the first name that an object of the tree has twice.
 * @param {Node} node
 * @returns {Node | undefined}
 */
function repeatedName(node) {
  const names = new Set();
  for (const child of node.children ?? []) {
    const [name] = node.type === 'object' ? (child.children ?? []) : [];
    if (name && names.has(name.value)) return name;
    names.add(name?.value);
    const inner = repeatedName(child);
    if (inner) return inner;
  }
  return undefined;
}

/**
 * @param {string} text
 * @param {number} at
 * @param {string} message
 * @returns {JsonError}
 */
function errorAt(text, at, message) {
  const before = text.slice(0, at);
  return { at, line: before.split('\n').length, column: at - before.lastIndexOf('\n'), message };
}

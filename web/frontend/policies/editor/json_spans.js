/* Parses JSON text and records the span of every value, so that an edit can keep the rest of the text. */

const MAX_DEPTH = 32;
const SPACE = /[\x20\t\r\n]*/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
// JSON forbids control characters inside strings.
// eslint-disable-next-line no-control-regex
const STRING = /"(?:[^"\\\u0000-\u001f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"/y;
const WORDS = { true: true, false: false, null: null };

class Unreadable extends Error {
  /**
   * @param {number} at
   * @param {string} message
   */
  constructor(at, message) {
    super(message);
    this.at = at;
  }
}

/** @typedef {{ line: number, column: number, message: string }} JsonError */
/** @typedef {{ start: number, end: number, keyStart?: number }} Span offsets of a value, and of its name */
/** @typedef {Map<string, Span>} Spans by dotted path */
/** @typedef {{ text: string, at: number, spans: Spans }} Reader */

/**
 * Return {value, spans, error}: the value, a map from dotted paths to {start, end} of each value and {keyStart} of its
 * name, and, for invalid JSON, {line, column, message} instead of a value.
 * @param {string} text
 */
export function readSpans(text) {
  const spans = new Map();
  const reader = { text, at: 0, spans };
  try {
    skip(reader);
    const value = readValue(reader, [], 0);
    skip(reader);
    if (reader.at < text.length) throw new Unreadable(reader.at, 'extra text after the end of the document');
    return { value, spans, error: null };
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error;
    return { value: undefined, spans, error: { ...position(text, error.at), message: error.message } };
  }
}

/**
 * Return line and column of an offset, both from 1.
 * @param {string} text
 * @param {number} at
 */
export function position(text, at) {
  const before = text.slice(0, at);
  return { line: before.split('\n').length, column: at - before.lastIndexOf('\n') };
}

/**
 * @param {Reader} reader
 * @param {string[]} path
 * @param {number} depth
 * @returns {unknown}
 */
function readValue(reader, path, depth) {
  if (depth > MAX_DEPTH) throw new Unreadable(reader.at, 'nested too deeply');
  const start = reader.at;
  const value = readAny(reader, path, depth);
  const span = reader.spans.get(path.join('.')) ?? {};
  reader.spans.set(path.join('.'), { ...span, start, end: reader.at });
  return value;
}

/**
 * @param {Reader} reader
 * @param {string[]} path
 * @param {number} depth
 * @returns {unknown}
 */
function readAny(reader, path, depth) {
  const sign = reader.text[reader.at];
  if (sign === undefined) throw new Unreadable(reader.at, 'the document ends too early');
  if (sign === '{') return readObject(reader, path, depth);
  if (sign === '[') return readList(reader, path, depth);
  if (sign === '"') return readString(reader);
  const number = match(reader, NUMBER);
  if (number) return Number(number);
  for (const [word, value] of Object.entries(WORDS)) {
    if (!reader.text.startsWith(word, reader.at)) continue;
    reader.at += word.length;
    return value;
  }
  throw new Unreadable(reader.at, `expected a value, not ${JSON.stringify(sign)}`);
}

/**
 * @param {Reader} reader
 * @param {string[]} path
 * @param {number} depth
 */
function readObject(reader, path, depth) {
  const object = {};
  reader.at += 1;
  skip(reader);
  if (took(reader, '}')) return object;
  for (;;) {
    const keyStart = reader.at;
    if (reader.text[reader.at] !== '"') throw new Unreadable(reader.at, expected(reader, 'a name in quotes'));
    const name = readString(reader);
    if (Object.hasOwn(object, name)) throw new Unreadable(keyStart, `${JSON.stringify(name)} appears twice`);
    skip(reader);
    if (!took(reader, ':')) throw new Unreadable(reader.at, expected(reader, 'a colon'));
    skip(reader);
    const inner = [...path, name];
    reader.spans.set(inner.join('.'), { keyStart, start: keyStart, end: keyStart });
    Object.defineProperty(object, name, {
      value: readValue(reader, inner, depth + 1),
      enumerable: true,
      writable: true,
      configurable: true,
    });
    skip(reader);
    if (took(reader, '}')) return object;
    if (!took(reader, ',')) throw new Unreadable(reader.at, expected(reader, 'a comma or }'));
    skip(reader);
  }
}

/**
 * @param {Reader} reader
 * @param {string[]} path
 * @param {number} depth
 */
function readList(reader, path, depth) {
  /** @type {unknown[]} */
  const list = [];
  reader.at += 1;
  skip(reader);
  if (took(reader, ']')) return list;
  for (;;) {
    list.push(readValue(reader, [...path, String(list.length)], depth + 1));
    skip(reader);
    if (took(reader, ']')) return list;
    if (!took(reader, ',')) throw new Unreadable(reader.at, expected(reader, 'a comma or ]'));
    skip(reader);
  }
}

/** @param {Reader} reader */
function readString(reader) {
  const start = reader.at;
  const text = match(reader, STRING);
  if (!text) throw new Unreadable(start, 'unterminated string, or a character that needs a backslash');
  return JSON.parse(text);
}

/**
 * @param {Reader} reader
 * @param {string} what
 */
function expected(reader, what) {
  const sign = reader.text[reader.at];
  return sign === undefined ? 'the document ends too early' : `expected ${what}, not ${JSON.stringify(sign)}`;
}

/** @param {Reader} reader */
function skip(reader) {
  match(reader, SPACE);
}

/**
 * @param {Reader} reader
 * @param {string} sign
 */
function took(reader, sign) {
  if (reader.text[reader.at] !== sign) return false;
  reader.at += 1;
  return true;
}

/**
 * @param {Reader} reader
 * @param {RegExp} pattern
 */
function match(reader, pattern) {
  pattern.lastIndex = reader.at;
  const text = pattern.exec(reader.text)?.[0] ?? '';
  reader.at += text.length;
  return text;
}

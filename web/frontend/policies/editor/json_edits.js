/* Changes one value of JSON text by its path and keeps the rest of the text. */

import { readSpans } from './json_spans.js';
/** @import { Spans } from './json_spans.js' */

const INDENT = '  ';

/**
 * Return the text with `json` at the path; missing objects are created.
 * @param {string} text
 * @param {string[]} path
 * @param {string} json
 */
export function withValue(text, path, json) {
  const { spans, error } = readSpans(text);
  if (error) return text;
  const span = spans.get(path.join('.'));
  if (span) return text.slice(0, span.start) + json + text.slice(span.end);
  let depth = path.length - 1;
  while (depth > 0 && !spans.has(path.slice(0, depth).join('.'))) depth -= 1;
  const missing = path.slice(depth + 1).reduceRight((inner, name) => `{${JSON.stringify(name)}: ${inner}}`, json);
  return withMember(text, spans, path.slice(0, depth), path[depth], missing);
}

/**
 * Return the text without the value at the path and its name.
 * @param {string} text
 * @param {string[]} path
 */
export function withoutValue(text, path) {
  const { spans, error } = readSpans(text);
  const span = spans.get(path.join('.'));
  if (error || !span || span.keyStart === undefined) return text;
  const after = /^\s*,/.exec(text.slice(span.end));
  if (after) {
    const next = span.end + after[0].length;
    const gap = /^\s*/.exec(text.slice(next))?.[0].length ?? 0;
    return text.slice(0, span.keyStart) + text.slice(next + gap);
  }
  const before = /,?\s*$/.exec(text.slice(0, span.keyStart))?.[0].length ?? 0;
  const owner = spans.get(path.slice(0, -1).join('.'));
  const rest = text.slice(span.end);
  const alone = text[span.keyStart - before - 1] === '{' && span.keyStart - before - 1 === owner.start;
  return text.slice(0, span.keyStart - before) + (alone ? rest.trimStart() : rest);
}

/**
 * Format a value as the console does, one member per line.
 * @param {unknown} value
 * @param {number} depth
 */
export function pieceOf(value, depth) {
  return JSON.stringify(value, null, INDENT.length).replaceAll('\n', `\n${INDENT.repeat(depth)}`);
}

/**
 * @param {string} text
 * @param {Spans} spans
 * @param {string[]} owner
 * @param {string} name
 * @param {string} json
 */
function withMember(text, spans, owner, name, json) {
  const span = spans.get(owner.join('.'));
  if (!span || text[span.start] !== '{') return text;
  const inner = text.slice(span.start + 1, span.end - 1);
  const indent = INDENT.repeat(owner.length);
  const kept = inner.trimEnd();
  const member = `${kept.trim() ? ',' : ''}\n${indent}${INDENT}${JSON.stringify(name)}: ${json}\n${indent}`;
  return text.slice(0, span.start + 1) + kept + member + text.slice(span.end - 1);
}

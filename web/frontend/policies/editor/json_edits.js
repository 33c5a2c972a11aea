/* Changes one value of JSON text by its path and leaves the rest of the text as it was written. */

import { readPlaces } from './json_places.js';
/** @import { Places } from './json_places.js' */

const INDENT = '  ';

/**
 * The text with `json` (a piece of JSON) at the path; objects on the way are made where they are missing.
 * @param {string} text
 * @param {string[]} path
 * @param {string} json
 */
export function withValue(text, path, json) {
  const { places, error } = readPlaces(text);
  if (error) return text;
  const place = places.get(path.join('.'));
  if (place) return text.slice(0, place.start) + json + text.slice(place.end);
  let depth = path.length - 1;
  while (depth > 0 && !places.has(path.slice(0, depth).join('.'))) depth -= 1;
  const missing = path.slice(depth + 1).reduceRight((inner, name) => `{${JSON.stringify(name)}: ${inner}}`, json);
  return withMember(text, places, path.slice(0, depth), path[depth], missing);
}

/**
 * The text without the value at the path and its name.
 * @param {string} text
 * @param {string[]} path
 */
export function withoutValue(text, path) {
  const { places, error } = readPlaces(text);
  const place = places.get(path.join('.'));
  if (error || !place || place.keyStart === undefined) return text;
  const after = /^\s*,/.exec(text.slice(place.end));
  if (after) {
    const next = place.end + after[0].length;
    const gap = /^\s*/.exec(text.slice(next))?.[0].length ?? 0;
    return text.slice(0, place.keyStart) + text.slice(next + gap);
  }
  const before = /,?\s*$/.exec(text.slice(0, place.keyStart))?.[0].length ?? 0;
  const owner = places.get(path.slice(0, -1).join('.'));
  const rest = text.slice(place.end);
  const alone = text[place.keyStart - before - 1] === '{' && place.keyStart - before - 1 === owner.start;
  return text.slice(0, place.keyStart - before) + (alone ? rest.trimStart() : rest);
}

/**
 * A value as the console writes it, each member on a line of its own.
 * @param {unknown} value
 * @param {number} depth
 */
export function pieceOf(value, depth) {
  return JSON.stringify(value, null, INDENT.length).replaceAll('\n', `\n${INDENT.repeat(depth)}`);
}

/**
 * @param {string} text
 * @param {Places} places
 * @param {string[]} owner
 * @param {string} name
 * @param {string} json
 */
function withMember(text, places, owner, name, json) {
  const place = places.get(owner.join('.'));
  if (!place || text[place.start] !== '{') return text;
  const inner = text.slice(place.start + 1, place.end - 1);
  const indent = INDENT.repeat(owner.length);
  const kept = inner.trimEnd();
  const member = `${kept.trim() ? ',' : ''}\n${indent}${INDENT}${JSON.stringify(name)}: ${json}\n${indent}`;
  return text.slice(0, place.start + 1) + kept + member + text.slice(place.end - 1);
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readSpans } from './json_spans.js';

const TEXTS = [
  '{}',
  '[]',
  '3',
  '"a\\u00e9\\n"',
  ' {"a" : [1, -2.5e3, {"b": null}], "c": {"d": true}} ',
  '{"__proto__": 1, "a.b": 2}',
];

test('it parses what JSON.parse parses', () => {
  for (const text of TEXTS) {
    const { value, error } = readSpans(text);
    assert.equal(error, null);
    assert.equal(JSON.stringify(value), JSON.stringify(JSON.parse(text)));
  }
});

test('every value is at its span', () => {
  const text = ' {"a" : [1, -2.5e3, {"b": null}], "c": {"d": true}} ';
  const { spans } = readSpans(text);
  const at = (path) => text.slice(spans.get(path).start, spans.get(path).end);
  assert.deepEqual(['a', 'a.1', 'a.2.b', 'c.d'].map(at), ['[1, -2.5e3, {"b": null}]', '-2.5e3', 'null', 'true']);
  assert.equal(text.slice(spans.get('c').keyStart, spans.get('c').keyStart + 3), '"c"');
});

test('it rejects what JSON.parse rejects, with the position', () => {
  const wrong = [
    '',
    '{',
    '{"a":1,}',
    '[1,]',
    '{a:1}',
    "{'a':1}",
    '01',
    '+1',
    '1.',
    'NaN',
    '"a',
    '"\n"',
    '"\\x"',
    '{"a" 1}',
    '1 2',
    'tru',
  ];
  for (const text of wrong) {
    assert.throws(() => JSON.parse(text), text);
    const { value, error } = readSpans(text);
    assert.equal(value, undefined);
    assert.ok(error.line >= 1 && error.column >= 1 && error.message, text);
  }
  const { error } = readSpans('{\n  "a": 1,\n  b: 2\n}');
  assert.deepEqual(error, { line: 3, column: 3, message: 'expected a name in quotes, not "b"' });
});

test('it rejects a duplicate name and excessive nesting', () => {
  assert.match(readSpans('{"a": 1, "a": 2}').error.message, /"a" appears twice/);
  assert.match(readSpans('['.repeat(5000)).error.message, /nested too deeply/);
});

test('random texts are accepted if JSON.parse accepts them', () => {
  let seed = 7;
  const next = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  const signs = ['{', '}', '[', ']', '"a"', '"b"', ':', ',', '1', '-2.5', 'true', 'null', ' ', '\n'];
  for (let round = 0; round < 5000; round += 1) {
    const text = Array.from({ length: 1 + next(7) }, () => signs[next(signs.length)]).join('');
    let wanted;
    try {
      wanted = JSON.stringify(JSON.parse(text));
    } catch {
      wanted = undefined;
    }
    const { value, error } = readSpans(text);
    if (error?.message.includes('twice')) continue;
    assert.equal(error ? undefined : JSON.stringify(value), wanted, text);
  }
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeAt, readJson, withPiece, withValue } from './json_text.js';

const TEXT =
  '{\n  "placement": {\n    "name": "least_cost",\n    "params": {"beta": 8}\n  },\n  "ttft_slo_s":   5.0\n}';
const parsed = (text) => JSON.parse(text);

test('it rejects what JSON.parse rejects, with the position', () => {
  const wrong = ['', '{', '{"a":1,}', '[1,]', '{a:1}', "{'a':1}", '01', '+1', '1.', 'NaN', '"a', '"\n"', '"\\x"'];
  for (const text of [...wrong, '{"a" 1}', '1 2', 'tru', '{} // no']) {
    const { value, error } = readJson(text);
    assert.equal(value, undefined, text);
    assert.ok(error.line >= 1 && error.column >= 1 && error.message, text);
  }
  const { error } = readJson('{\n  "a": 1,\n  b: 2\n}');
  assert.deepEqual([error.line, error.column, error.at], [3, 3, 14]);
});

test('it rejects a duplicate name and excessive nesting', () => {
  const { error } = readJson('{"b": {"a": 1, "a": 2}}');
  assert.deepEqual([error.at, error.message], [15, '"a" appears twice']);
  assert.match(readJson('['.repeat(65_000)).error.message, /nested too deeply/);
});

test('one value changes and the rest is kept', () => {
  assert.equal(withPiece(TEXT, ['placement', 'params', 'beta'], '5'), TEXT.replace('8', '5'));
  assert.equal(withPiece(TEXT, ['ttft_slo_s'], '3.0'), TEXT.replace('5.0', '3.0'));
});

test('a missing value is added to its object as typed', () => {
  const added = withPiece(TEXT, ['max_wait_s'], '30.0');
  assert.deepEqual(parsed(added), { ...parsed(TEXT), max_wait_s: 30 });
  assert.ok(added.startsWith(TEXT.slice(0, TEXT.indexOf('"ttft_slo_s"'))), added);
  assert.ok(added.endsWith('5.0,\n  "max_wait_s": 30.0\n}'), added);
  assert.deepEqual(parsed(withPiece('{}', ['order', 'name'], '"fifo"')), { order: { name: 'fifo' } });
  assert.deepEqual(parsed(withPiece('{"order": {}}', ['order', 'params', 'x'], '1')), { order: { params: { x: 1 } } });
});

test('objects are written one member per line, indented to their depth', () => {
  const added = withValue(TEXT, ['placement', 'params'], { beta: 8, keys: 2 });
  assert.ok(added.includes('"params": {\n      "beta": 8,\n      "keys": 2\n    }'), added);
});

test('a value is removed with its name and one comma', () => {
  assert.deepEqual(parsed(withValue(TEXT, ['ttft_slo_s'])), { placement: parsed(TEXT).placement });
  assert.deepEqual(parsed(withValue(TEXT, ['placement'])), { ttft_slo_s: 5 });
  assert.deepEqual(parsed(withValue(TEXT, ['placement', 'params', 'beta'])).placement.params, {});
  assert.equal(withValue(TEXT, ['nothing']), TEXT);
});

test('invalid JSON is left unchanged and has no nodes', () => {
  assert.equal(withPiece('{oops', ['a'], '1'), '{oops');
  assert.equal(withValue('{oops', ['a']), '{oops');
  assert.equal(nodeAt('{oops', ['a']), undefined);
});

test('random removals and additions leave valid JSON with the expected values', () => {
  let text = '{}';
  const wanted = {};
  let seed = 3;
  const next = (below) => {
    seed = (seed * 1103515245 + 12345) % 2147483648;
    return seed % below;
  };
  for (let round = 0; round < 400; round += 1) {
    const name = 'abcd'[next(4)];
    if (next(3)) {
      wanted[name] = next(100);
      text = withPiece(text, [name], String(wanted[name]));
    } else {
      delete wanted[name];
      text = withValue(text, [name]);
    }
    assert.deepEqual(parsed(text), wanted);
  }
});

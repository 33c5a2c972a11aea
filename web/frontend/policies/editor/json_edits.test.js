import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pieceOf, withValue, withoutValue } from './json_edits.js';

const TEXT =
  '{\n  "placement": {\n    "name": "least_cost",\n    "params": {"beta": 8}\n  },\n  "ttft_slo_s":   5.0\n}';
const parsed = (text) => JSON.parse(text);

test('one value changes and the rest is kept', () => {
  assert.equal(withValue(TEXT, ['placement', 'params', 'beta'], '5'), TEXT.replace('8', '5'));
  assert.equal(withValue(TEXT, ['ttft_slo_s'], '3'), TEXT.replace('5.0', '3'));
});

test('a missing value is added to its object', () => {
  const added = withValue(TEXT, ['max_wait_s'], '30');
  assert.deepEqual(parsed(added), { ...parsed(TEXT), max_wait_s: 30 });
  assert.ok(added.startsWith(TEXT.slice(0, -2)));
  assert.deepEqual(parsed(withValue('{}', ['order', 'name'], '"fifo"')), { order: { name: 'fifo' } });
  assert.deepEqual(parsed(withValue('{"order": {}}', ['order', 'params', 'x'], '1')), { order: { params: { x: 1 } } });
});

test('a value is removed with its name and one comma', () => {
  assert.deepEqual(parsed(withoutValue(TEXT, ['ttft_slo_s'])), { placement: parsed(TEXT).placement });
  assert.deepEqual(parsed(withoutValue(TEXT, ['placement'])), { ttft_slo_s: 5 });
  assert.deepEqual(parsed(withoutValue(TEXT, ['placement', 'params', 'beta'])).placement.params, {});
  assert.equal(withoutValue(TEXT, ['nothing']), TEXT);
});

test('invalid JSON is left unchanged', () => {
  assert.equal(withValue('{oops', ['a'], '1'), '{oops');
  assert.equal(withoutValue('{oops', ['a']), '{oops');
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
      text = withValue(text, [name], String(wanted[name]));
    } else {
      delete wanted[name];
      text = withoutValue(text, [name]);
    }
    assert.deepEqual(parsed(text), wanted);
  }
});

test('values are indented to their depth', () => {
  assert.equal(pieceOf({ beta: 8 }, 2), '{\n      "beta": 8\n    }');
  assert.equal(pieceOf({}, 2), '{}');
});

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { fittingLayout, labelWidth, panelLayout, rowTop } from './panel_layout.js';

test('thirty-two engines in two pools keep rows of at least 11 px and fill the height', () => {
  const layout = fittingLayout(690, 32, 2, false, '');
  assert.ok(layout.pitch >= 11 && layout.pitch <= 18);
  assert.ok(layout.total <= 690 && layout.total >= 686);
});

test('a small fleet has tall rows and lines that fill the height', () => {
  const layout = panelLayout(690, 8, 2);
  assert.ok(layout.pitch >= 18);
  assert.ok(layout.line > 60);
  assert.ok(layout.total >= 686 && layout.total <= 690);
});

test('a folded queue gives its height to the others', () => {
  const [open, folded] = [panelLayout(690, 12, 2), panelLayout(690, 12, 2, false, true)];
  assert.ok(open.queue >= 34);
  assert.ok(folded.line + folded.pitch > open.line + open.pitch);
  assert.ok(folded.total <= 690 && folded.total >= 686);
});

test('an untouched queue is folded only if the panel then fits', () => {
  assert.equal(fittingLayout(690, 12, 2, false, '').folded, false);
  assert.equal(fittingLayout(690, 32, 2, false, '').folded, true);
  assert.equal(fittingLayout(690, 32, 2, false, 'open').folded, false);
  assert.equal(fittingLayout(690, 200, 2, false, '').folded, false);
  assert.equal(fittingLayout(690, 12, 2, false, 'folded').folded, true);
  assert.equal(fittingLayout(690, 12, 2, true, '').folded, false);
});

test('a fleet too large for the window keeps its smallest rows and grows beyond it', () => {
  const layout = panelLayout(500, 200, 3);
  assert.equal(layout.pitch, 11);
  assert.ok(layout.total > 500);
});

test('the column of names follows the longest name within limits', () => {
  assert.equal(labelWidth(['e-01'], ['chat']), 88);
  assert.ok(labelWidth(['sim-engine-01'], ['chat']) > 100);
  assert.equal(labelWidth(['x'.repeat(200)], ['chat']), 152);
});

test('the first row of the second pool is below the first pool and its own strip', () => {
  const layout = panelLayout(690, 3, 2);
  const plan = [
    { pool: 0, rows: [0, 1] },
    { pool: 1, rows: [2] },
  ];
  const head = layout.strip + 2 * layout.gap;
  assert.equal(rowTop(layout, plan, 0, 1), head + layout.pitch);
  assert.equal(rowTop(layout, plan, 1, 0), 2 * head + 2 * layout.pitch);
});

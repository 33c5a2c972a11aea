import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FleetState, UNKNOWN_BYTE } from '../live/fleet_state.js';
import { cellOverlay, overlayRuns } from './cell_overlay.js';

const STATES = ['serving', 'degraded', 'quarantined', 'lost', 'draining', 'maintenance'];
const GAP = '';

/**
 * A fleet whose engines had these states from column `first` on; GAP for columns without a sample.
 * @param {number} first
 * @param {string[][]} rows
 * @param {number[][]} tokens
 */
function fleet(first, rows, tokens = rows.map((row) => row.map(() => 0))) {
  const state = new FleetState();
  const columns = rows[0].length;
  Object.assign(state, { states: STATES, columns, index: first + columns - 1, engines: rows.map(() => ({})) });
  state.engineByteRing = { state: new Uint8Array(rows.length * columns) };
  state.engineRing = { tokens: new Float32Array(rows.length * columns) };
  rows.forEach((row, engine) =>
    row.forEach((word, index) => {
      const slot = engine * columns + ((first + index) % columns);
      state.engineByteRing.state[slot] = word === GAP ? UNKNOWN_BYTE : STATES.indexOf(word);
      state.engineRing.tokens[slot] = tokens[engine][index];
    }),
  );
  return state;
}

test('each state that takes no work has its own hatch', () => {
  assert.equal(cellOverlay('lost', 500), 'lost');
  assert.equal(cellOverlay('quarantined', 500), 'quarantined');
  assert.equal(cellOverlay('quarantined', 0), 'quarantined');
  assert.equal(cellOverlay('maintenance', 0), 'away');
});

test('a draining engine is underlined while it has work and hatched afterwards', () => {
  assert.equal(cellOverlay('draining', 12), 'leaving');
  assert.equal(cellOverlay('draining', 0), 'away');
});

test('an engine that takes work has no overlay, whatever its load', () => {
  for (const word of ['serving', 'hot', 'degraded', 'unknown', 'starting']) assert.equal(cellOverlay(word, 9), '');
});

test('equal adjacent cells are one run per row', () => {
  const state = fleet(40, [
    ['serving', 'quarantined', 'quarantined', 'serving', 'lost'],
    ['maintenance', 'maintenance', 'serving', 'serving', 'serving'],
  ]);
  assert.deepEqual(overlayRuns(state, 0), [
    ['quarantined', 41, 43],
    ['lost', 44, 45],
  ]);
  assert.deepEqual(overlayRuns(state, 1), [['away', 40, 42]]);
});

test('a run continues across the wrap of the ring', () => {
  const state = fleet(43, [['serving', 'lost', 'lost', 'lost', 'serving']]);
  assert.deepEqual(overlayRuns(state, 0), [['lost', 44, 47]]);
});

test('one kind of hatch ends where another begins', () => {
  const state = fleet(0, [['draining', 'draining', 'maintenance', 'lost']], [[7, 0, 0, 0]]);
  assert.deepEqual(overlayRuns(state, 0), [
    ['leaving', 0, 1],
    ['away', 1, 3],
    ['lost', 3, 4],
  ]);
});

test('columns without samples and bands have no overlay', () => {
  const state = fleet(0, [['lost', GAP, 'lost']]);
  assert.deepEqual(overlayRuns(state, 0), [
    ['lost', 0, 1],
    ['lost', 2, 3],
  ]);
  assert.deepEqual(overlayRuns(state, 1), []);
});

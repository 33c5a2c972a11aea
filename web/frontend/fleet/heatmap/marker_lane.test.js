import assert from 'node:assert/strict';
import { test } from 'node:test';
import { arrangeMarkers } from '../../charts/time_axis.js';
import { capsuleKind, markersParts } from './marker_lane.js';

test('markers with enough room keep their labels', () => {
  const placed = arrangeMarkers([
    { x: 100, label: 'e-17' },
    { x: 300, label: 'e-23' },
  ]);
  assert.deepEqual(
    placed.map((item) => [item.label, item.wordy]),
    [
      ['e-17', true],
      ['e-23', true],
    ],
  );
});

test('crowding drops the label of the earlier marker', () => {
  const placed = arrangeMarkers([
    { x: 100, label: 'v42 live' },
    { x: 130, label: 'e-23' },
  ]);
  assert.deepEqual(
    placed.map((item) => item.wordy),
    [false, true],
  );
});

test('markers of one moment are stacked', () => {
  const placed = arrangeMarkers([
    { x: 100, label: 'a' },
    { x: 105, label: 'b' },
    { x: 122, label: 'c' },
  ]);
  assert.equal(placed.length, 1);
  assert.equal(placed[0].label, '3 events');
  assert.equal(placed[0].markers.length, 3);
});

test('a stack has the shape of its worst event', () => {
  assert.equal(capsuleKind([{ kind: 'back' }]), 'back');
  assert.equal(capsuleKind([{ kind: 'degraded' }, { kind: 'lost' }, { kind: 'back' }]), 'lost');
  assert.equal(capsuleKind([{ kind: 'back' }, { kind: 'policy' }]), 'policy');
  assert.equal(capsuleKind([{ kind: 'back' }, { kind: 'joined' }]), 'events');
});

test('the readout lists the markers of a stack, the first four in full', () => {
  const markers = [1, 2, 3, 4, 5, 6].map((at) => ({ at, text: `event ${at}` }));
  assert.deepEqual(markersParts({ atS: 61 }, markers.slice(0, 1)), [
    ['00:00:01', '60\u202fs ago'],
    ['', 'event 1'],
  ]);
  assert.equal(markersParts({ atS: 61 }, markers).length, 6);
  assert.deepEqual(markersParts({ atS: 61 }, markers).at(-1), ['', 'and 2 more']);
});

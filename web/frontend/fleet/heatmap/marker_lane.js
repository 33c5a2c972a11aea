/* Moments on the time axis: capsules in the lane, their icons centred on the moment. */

import { ago, clock } from '../../shell/format.js';
import { byId, findAll, icon, make } from '../../shell/element.js';
import { CAPSULE, arrangeMarkers } from '../../charts/time_axis.js';
import { firstSampled } from './gaps.js';
/** @import { Capsule } from '../../charts/time_axis.js' */
/** @import { FleetState } from '../../live/fleet_state.js' */
/** @import { Annotation } from '../../live/frame_types.js' */
/** @import { Readout, View } from '../view.js' */

/** @type {Record<string, string>} */
const ICONS = {
  policy: 'i-flag',
  started: 'i-return',
  back: 'i-return',
  restarted: 'i-restart',
  joined: 'i-joined',
  left: 'i-left',
  events: 'i-events',
};
/** Minimum width left of the first data for a note, CSS pixels. */
const NOTE_ROOM = 180;

/** Kinds that determine the shape of a stack, worst first. */
const WORST_FIRST = ['lost', 'quarantined', 'hot', 'degraded', 'policy', 'unknown'];

/**
 * Return the kind of a capsule: the one kind, the worst of several, or 'events'.
 * @param {Annotation[]} markers
 */
export function capsuleKind(markers) {
  if (markers.length === 1) return markers[0].kind;
  return WORST_FIRST.find((kind) => markers.some((marker) => marker.kind === kind)) ?? 'events';
}

/**
 * Return the readout of the markers of one capsule; the first part is the moment.
 * @param {FleetState} state
 * @param {Annotation[]} markers
 */
export function markersParts(state, markers) {
  const [first] = markers;
  const moment = [clock(first.at), ago(state.atS - first.at)];
  return [
    moment,
    ...markers.slice(0, 4).map((marker) => (markers.length > 1 ? [clock(marker.at), marker.text] : ['', marker.text])),
    ...(markers.length > 4 ? [['', `and ${markers.length - 4} more`]] : []),
  ];
}

export class MarkerLane {
  /** @param {View} view */
  constructor(view) {
    this.view = view;
    this.root = byId('lane');
    this.width = 0;
    /** @type {Map<string, HTMLElement>} */
    this.capsules = new Map();
    this.key = '';
    /** @type {Readout | null} */
    this.readout = null;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.update();
    }).observe(this.root);
  }

  /** Markers in scope with their columns. */
  get markers() {
    const { state, pools } = this.view;
    if (!state || state.index === null) return [];
    const ids = pools.map((pool) => state.pools[pool].id);
    return state.markers
      .filter((marker) => ids.includes(marker.pool_id))
      .map((marker) => ({ ...marker, column: Math.floor(marker.at / state.columnS) - state.first }))
      .filter((marker) => marker.column >= 0 && marker.column < state.columns);
  }

  update() {
    const { state } = this.view;
    if (!state || state.index === null || !this.width) return;
    const placed = arrangeMarkers(
      this.markers.map((marker) => ({ ...marker, x: ((marker.column + 0.5) * this.width) / state.columns })),
    );
    const key = JSON.stringify([
      this.width,
      state.first,
      placed.map((item) => [item.x, item.markers.map((marker) => [marker.at, marker.kind, marker.text])]),
    ]);
    if (key === this.key) return;
    this.key = key;
    // Reuse the element of an unchanged capsule, so that focus and hover stay while it moves.
    const before = this.capsules;
    this.capsules = new Map();
    const shown = placed.map((item) => {
      const name = JSON.stringify([item.wordy, item.label, item.markers]);
      const capsule = before.get(name) ?? this.#capsule(item);
      capsule.style.left = `${Math.round(item.x - CAPSULE / 2)}px`;
      this.capsules.set(name, capsule);
      return capsule;
    });
    const wanted = [...this.#beginning(), ...shown];
    for (const child of findAll(this.root, ':scope > *')) if (!wanted.includes(child)) child.remove();
    wanted.forEach(
      (child, index) =>
        this.root.children[index] !== child && this.root.insertBefore(child, this.root.children[index] ?? null),
    );
    if (this.readout && this.view.readout === this.readout && !this.root.querySelector(':hover, :focus'))
      this.view.readout = null;
  }

  /** Note the start of the record while the window is not full: empty is not idle. */
  #beginning() {
    const { state } = this.view;
    const column = firstSampled(state);
    const x = (column * this.width) / state.columns;
    if (x < NOTE_ROOM) return [];
    if (column === state.columns) return [];
    const note = make('span', 'lane-note', `recorded since ${clock(state.timeOf(state.first + column))}`);
    note.style.right = `${Math.round(this.width - x + CAPSULE)}px`;
    return [note];
  }

  /** @param {Capsule<Annotation & { x: number }>} capsule */
  #capsule({ label, wordy, markers }) {
    const kind = capsuleKind(markers);
    const symbol = ICONS[kind] ?? `s-${kind}`;
    const shaped = !ICONS[kind];
    const capsule = make(
      'button',
      `mark-event${wordy ? ' wordy' : ''}${markers.some((marker) => marker.kind === 'policy') ? ' lead' : ''}`,
      icon(symbol, shaped ? `shape shape-${kind}` : ''),
      ...(wordy ? [label] : []),
    );
    capsule.type = 'button';
    const words = markers.map((marker) => `${clock(marker.at)} ${marker.text}`).join('\n');
    capsule.setAttribute('aria-label', wordy ? `${label}: ${words}` : words);
    this.#followPointer(capsule, markers);
    const about = markers.findLast((marker) => marker.engine_id);
    if (about) capsule.addEventListener('click', () => this.view.openEngine(about.engine_id));
    return capsule;
  }

  /**
   * Show the markers in the readout on hover and focus; nothing covers the data.
   * @param {HTMLElement} capsule
   * @param {Annotation[]} markers
   */
  #followPointer(capsule, markers) {
    /** @param {Readout | null} readout */
    const show = (readout) => {
      this.readout = readout;
      this.view.readout = readout;
      this.view.changed('cursor');
    };
    const readout = () => markersParts(this.view.state, markers);
    for (const kind of ['pointerenter', 'focus']) capsule.addEventListener(kind, () => show(readout));
    for (const kind of ['pointerleave', 'blur']) capsule.addEventListener(kind, () => this.view.readout && show(null));
  }
}

/* Moments on the time axis: capsules in the lane, their icons centred on the moment. */

import { clock, count } from '../figures/format.js';
import { byId, icon, make } from './element.js';

const ICONS = { policy: 'i-flag', started: 'i-return', back: 'i-return', restarted: 'i-restart', joined: 'i-joined', left: 'i-left', events: 'i-events' };
const CAPSULE = 20;
const GAP = 3;
const LETTER = 6.3;
const PADDING = 7;
/** Width left of the first data below which there is nothing to explain, CSS pixels. */
const NOTE_ROOM = 180;

/** The kinds that give a stack their shape, worst first. */
const WORST_FIRST = ['lost', 'hot', 'degraded', 'unknown', 'policy'];

/** What a capsule shows for its markers: the one kind, the worst of several, or 'events'. */
export function capsuleKind(markers) {
  if (markers.length === 1) return markers[0].kind;
  return WORST_FIRST.find((kind) => markers.some((marker) => marker.kind === kind)) ?? 'events';
}

/** Width of a capsule with its words, CSS pixels. */
const wordyWidth = (label) => CAPSULE + label.length * LETTER + PADDING;

/**
 * Place markers [{x, label, …}] (x in CSS pixels, ascending) without overlap: crowding drops words first,
 * then stacks. Returns [{x, label, wordy, markers}], `markers` being those that the capsule stands for.
 */
export function placeMarkers(markers) {
  const stacks = [];
  for (const marker of markers) {
    const last = stacks.at(-1);
    if (last && marker.x - last.x < CAPSULE + GAP) last.markers.push(marker);
    else stacks.push({ x: marker.x, markers: [marker] });
  }
  return stacks.map((stack, place) => {
    const label = stack.markers.length > 1 ? count(stack.markers.length, 'event') : stack.markers[0].label;
    const next = stacks[place + 1];
    return { ...stack, label, wordy: !next || stack.x + wordyWidth(label) + GAP <= next.x };
  });
}

/** Place of the oldest column in which any engine was heard; 0 when the whole window is known. */
export function firstHeard(state) {
  for (let place = 0; place < state.columns; place += 1) {
    if (state.engines.some((_, row) => state.stateAt(row, state.first + place))) return place;
  }
  return 0;
}

export class MarkerLane {
  constructor(view) {
    this.view = view;
    this.root = byId('lane');
    this.width = 0;
    new ResizeObserver(([entry]) => {
      this.width = entry.contentRect.width;
      this.update();
    }).observe(this.root);
  }

  /** Markers in scope with their column places. */
  get markers() {
    const { state, pools } = this.view;
    const ids = pools.map((pool) => state.pools[pool].id);
    return state.markers.filter((marker) => ids.includes(marker.pool_id))
      .map((marker) => ({ ...marker, place: Math.floor(marker.at / state.columnS) - state.first }))
      .filter((marker) => marker.place >= 0 && marker.place < state.columns);
  }

  update() {
    const { state } = this.view;
    if (state.index === null || !this.width) return;
    const placed = placeMarkers(this.markers.map((marker) => ({ ...marker, x: ((marker.place + 0.5) * this.width) / state.columns })));
    const key = JSON.stringify([this.width, state.first, placed.map((item) => item.markers.map((marker) => marker.number))]);
    if (key === this.key) return;
    this.key = key;
    this.root.replaceChildren(...this.#beginning(), ...placed.map((item) => this.#capsule(item)));
  }

  /** Say since when there is data while the window is not full: empty is not idle. */
  #beginning() {
    const { state } = this.view;
    const place = firstHeard(state);
    const x = (place * this.width) / state.columns;
    if (x < NOTE_ROOM) return [];
    const note = make('span', 'lane-note', `recorded since ${clock(state.timeOf(state.first + place))}`);
    note.style.right = `${Math.round(this.width - x + CAPSULE)}px`;
    return [note];
  }

  #capsule({ x, label, wordy, markers }) {
    const kind = capsuleKind(markers);
    const symbol = ICONS[kind] ?? `s-${kind}`;
    const shaped = !ICONS[kind];
    const capsule = make('button', `mark-event${wordy ? ' wordy' : ''}${markers.some((marker) => marker.kind === 'policy') ? ' lead' : ''}`,
      icon(symbol, shaped ? `shape shape-${kind}` : ''), ...(wordy ? [label] : []));
    capsule.type = 'button';
    capsule.style.left = `${Math.round(x - CAPSULE / 2)}px`;
    const words = markers.map((marker) => `${clock(marker.at)} ${marker.text}`).join('\n');
    capsule.title = words;
    capsule.setAttribute('aria-label', words);
    const about = markers.findLast((marker) => marker.engine_id);
    if (about) capsule.addEventListener('click', () => this.view.openEngine(about.engine_id));
    return capsule;
  }
}

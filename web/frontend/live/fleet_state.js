/* Fleet state of the page: rings of columns in preallocated typed arrays, and the newest texts. */

import { withClocks } from '../shell/format.js';
import { BandSeries } from './band_series.js';
import { ENGINE_BYTES, ENGINE_FLOATS, NOW_FLOATS, POOL_FLOATS } from './frame_reader.js';
/** @import { ColumnFrame, Frame, Head, Keyframe, MoreFrame } from './frame_types.js' */
/** @import { EngineFacts, Annotation, PoolFacts, Verdict } from './frame_types.js' */

/** The byte for unknown in a byte ring. */
export const UNKNOWN_BYTE = 255;
const MAX_MARKERS = 64;

/**
 * @template T
 * @param {string[]} names
 * @param {() => T} make
 * @returns {Record<string, T>}
 */
const rings = (names, make) => Object.fromEntries(names.map((name) => [name, make()]));

/**
 * A time range of the fleet: five minutes live, or any past range. Columns have absolute numbers; `index` is the
 * newest, `first` the oldest. Rows below `engines.length` are engines, those above are bands (BandSeries).
 */
export class FleetState {
  seq = -1;
  generation = 0;
  /** @type {EngineFacts[]} */
  engines = [];
  /** @type {PoolFacts[]} */
  pools = [];
  /** @type {Annotation[]} */
  markers = [];
  /** @type {string[]} */
  states = [];
  columns = 0;
  columnS = NaN;
  /** @type {number | null} */
  index = null;
  /** @type {number | null} Unix seconds of the newest sample. */
  at = null;
  windowS = 0;
  snapshotVersion = 0;
  roster = '';
  /** @type {Verdict} */
  verdict = { severity: 'quiet', lead: '', text: '', engine_id: '' };
  hourColumns = 0;
  hourColumnS = NaN;
  hourIndex = 0;
  hour = new Float32Array(0);
  now = new Float32Array(0);
  /** @type {Record<string, Float32Array>} */
  engineRing = {};
  /** @type {Record<string, Uint8Array>} */
  engineByteRing = {};
  /** @type {Record<string, Float32Array>} */
  poolRing = {};
  sampledRing = new Uint8Array(0);
  /** @type {(Map<number, Record<string, number>> | null)[]} */
  rejectionRing = [];
  /** @type {Map<string, (name: string) => number> | null} */
  livePools = null;
  /** @type {((poolId: string) => Record<string, number>) | null} */
  liveRejections = null;
  bands = new BandSeries(this);

  /** Shape that column frames must have. */
  get shape() {
    return { engines: this.engines.length, pools: this.pools.length };
  }

  /** Unix seconds of the newest sample; NaN before there is one. */
  get atS() {
    return this.at ?? NaN;
  }

  /** Number of the newest column; −1 before there is one. */
  get last() {
    return this.index ?? -1;
  }

  /** Number of the oldest column. */
  get first() {
    return this.last - this.columns + 1;
  }

  /** Seconds shown. */
  get spanS() {
    return this.columns * this.columnS;
  }

  /**
   * Unix seconds of the left edge of a column.
   * @param {number} index
   */
  timeOf(index) {
    return index * this.columnS;
  }

  /**
   * Replace everything with a keyframe.
   * @param {Keyframe} frame
   */
  applyKeyframe(frame) {
    const { head } = frame;
    this.generation += 1;
    this.livePools = null;
    this.liveRejections = null;
    this.columns = head.columns;
    this.columnS = head.column_s;
    this.hourColumns = head.strip_columns;
    this.hourColumnS = head.strip_column_s;
    this.states = head.states;
    this.engines = head.engines;
    this.pools = head.pools;
    this.markers = head.markers;
    this.roster = head.roster ?? '';
    this.index = head.index;
    this.engineRing = rings(ENGINE_FLOATS, () => new Float32Array(this.engines.length * this.columns));
    this.engineByteRing = rings(ENGINE_BYTES, () => new Uint8Array(this.engines.length * this.columns));
    this.poolRing = rings(POOL_FLOATS, () => new Float32Array(this.pools.length * this.columns));
    this.sampledRing = new Uint8Array(this.columns);
    this.rejectionRing = new Array(this.columns).fill(null);
    this.hour = frame.hour.slice();
    this.bands.reset();
    this.#takeHead(head, frame);
    if (this.index === null) return;
    for (let column = 0; column < this.columns; column += 1)
      this.#takeColumn(this.first + column, frame, column, this.columns);
  }

  /**
   * Apply a column frame; return false if one was missed and a keyframe is needed.
   * @param {ColumnFrame} frame
   */
  applyColumn(frame) {
    const { head } = frame;
    if (head.seq !== this.seq + 1 || this.index === null || head.index < this.index) return false;
    this.advance(head.index);
    this.#takeColumn(head.index, frame, 0, 1);
    this.#shiftHour(head.strip_index - this.hourIndex, frame.hour);
    for (const [row, facts] of head.facts) this.engines[row] = facts;
    const replaced = new Set(head.markers.map((marker) => marker.replaces));
    this.markers = [...this.markers.filter((marker) => !replaced.has(marker.number)), ...head.markers]
      .filter((marker) => marker.at >= this.timeOf(this.first))
      .slice(-MAX_MARKERS);
    this.#takeHead(head, frame);
    return true;
  }

  /**
   * Apply the columns that follow a past range; return false if they have another topology.
   * @param {MoreFrame} frame
   */
  applyMore(frame) {
    const { head } = frame;
    if (head.roster !== this.roster || this.index === null || head.index < this.index) return false;
    const from = head.index - head.columns + 1;
    if (from > this.index + 1) return false;
    this.advance(head.index);
    for (let column = 0; column < head.columns; column += 1) {
      if (from + column >= this.first) this.#takeColumn(from + column, frame, column, head.columns);
    }
    // The last columns may have changed as well.
    this.generation += 1;
    this.hour = frame.hour.slice();
    this.markers = head.markers;
    this.#takeHead(head, frame);
    return true;
  }

  /**
   * Move the right edge to column `index`; the columns between are unknown.
   * @param {number} index
   */
  advance(index) {
    for (let next = Math.max(this.last + 1, index - this.columns + 1); next <= index; next += 1)
      this.#clearColumn(next);
    this.index = Math.max(this.last, index);
  }

  /**
   * Copy texts and newest values of another state's engines by id, for a range that ends now.
   * @param {FleetState} live
   */
  takeNow(live) {
    const width = NOW_FLOATS.length;
    live.engines.forEach((engine, row) => {
      const mine = this.engineRow(engine.id);
      if (mine < 0) return;
      this.engines[mine] = engine;
      this.now.set(live.now.subarray(row * width, (row + 1) * width), mine * width);
    });
    this.livePools = new Map(live.pools.map((pool, row) => [pool.id, (name) => live.poolAt(name, row, live.index)]));
    this.liveRejections = (poolId) => live.rejectionsAt(live.poolRow(poolId), live.index);
    this.verdict = live.verdict;
    this.at = live.at;
    this.snapshotVersion = live.snapshotVersion;
  }

  /**
   * One value of an engine (or band) in a column, NaN for unknown.
   * @param {string} name
   * @param {number} row
   * @param {number | null} index
   */
  engineAt(name, row, index) {
    if (index === null || index < this.first || index > this.last) return NaN;
    if (row >= this.engines.length) return this.bands.at(name, row, index);
    return this.engineRing[name][row * this.columns + (index % this.columns)];
  }

  /**
   * Share 0..1 of an engine (kv, hit, predicted), NaN for unknown.
   * @param {string} name
   * @param {number} row
   * @param {number | null} index
   */
  shareAt(name, row, index) {
    if (index === null || index < this.first || index > this.last || row >= this.engines.length) return NaN;
    const value = this.engineByteRing[name][row * this.columns + (index % this.columns)];
    return value === UNKNOWN_BYTE ? NaN : value / 200;
  }

  /**
   * State of an engine in a column as a word; '' where no sample was received.
   * @param {number} row
   * @param {number | null} index
   */
  stateAt(row, index) {
    if (index === null || index < this.first || index > this.last || row >= this.engines.length) return '';
    return this.states[this.engineByteRing.state[row * this.columns + (index % this.columns)]] ?? '';
  }

  /**
   * One value of a pool, NaN for unknown.
   * @param {string} name
   * @param {number} pool
   * @param {number | null} index
   */
  poolAt(name, pool, index) {
    if (index === null || index < this.first || index > this.last) return NaN;
    return this.poolRing[name][pool * this.columns + (index % this.columns)];
  }

  /**
   * Return the newest value of a pool: the live one if this range ends now, else that of the last column.
   * @param {string} name
   * @param {number} pool
   */
  poolNow(name, pool) {
    const live = this.livePools?.get(this.pools[pool].id);
    return live ? live(name) : this.poolAt(name, pool, this.last);
  }

  /**
   * Rejections of a pool per second by code in a column; {} for none or unknown.
   * @param {number} pool
   * @param {number | null} index
   * @returns {Record<string, number>}
   */
  rejectionsAt(pool, index) {
    if (index === null || index < this.first || index > this.last) return {};
    return this.rejectionRing[index % this.columns]?.get(pool) ?? {};
  }

  /**
   * The newest rejections of a pool per second by code.
   * @param {number} pool
   */
  rejectionsNow(pool) {
    return this.liveRejections ? this.liveRejections(this.pools[pool].id) : this.rejectionsAt(pool, this.index);
  }

  /**
   * Whether any sample was received in a column.
   * @param {number} index
   */
  hasSample(index) {
    return index >= this.first && index <= this.last && this.sampledRing[index % this.columns] === 1;
  }

  /**
   * The newest value of an engine (or band), by its name in NOW_FLOATS.
   * @param {string} name
   * @param {number} row
   */
  nowOf(name, row) {
    if (row >= this.engines.length) return this.bands.at(name, row, this.last);
    return this.now[row * NOW_FLOATS.length + NOW_FLOATS.indexOf(name)];
  }

  /**
   * All columns of a series, oldest first: `read(index)` for each.
   * @template T
   * @param {(index: number) => T} read
   */
  series(read) {
    return Array.from({ length: this.columns }, (_, column) => read(this.first + column));
  }

  /** @param {string} poolId */
  poolRow(poolId) {
    return this.pools.findIndex((pool) => pool.id === poolId);
  }

  /** @param {string} engineId */
  engineRow(engineId) {
    return this.engines.findIndex((engine) => engine.id === engineId);
  }

  /**
   * @param {Head} head
   * @param {Frame} frame
   */
  #takeHead(head, frame) {
    this.seq = head.seq;
    this.at = head.at;
    this.windowS = head.window_s;
    this.snapshotVersion = head.snapshot_version;
    this.verdict = { ...head.verdict, text: withClocks(head.verdict.text) };
    this.hourIndex = head.strip_index;
    this.now = frame.now.slice();
  }

  /**
   * @param {number} index
   * @param {Frame} frame
   * @param {number} column
   * @param {number} width
   */
  #takeColumn(index, frame, column, width) {
    const { columns } = this;
    const slot = index % columns;
    const states = frame.engineBytes.state;
    let sampled = 0;
    for (const name of ENGINE_FLOATS) {
      const [ring, values] = [this.engineRing[name], frame.engineFloats[name]];
      for (let row = 0; row < this.engines.length; row += 1) ring[row * columns + slot] = values[row * width + column];
    }
    for (const name of ENGINE_BYTES) {
      const [ring, values] = [this.engineByteRing[name], frame.engineBytes[name]];
      for (let row = 0; row < this.engines.length; row += 1) ring[row * columns + slot] = values[row * width + column];
    }
    for (let row = 0; row < this.engines.length && !sampled; row += 1)
      sampled = states[row * width + column] === UNKNOWN_BYTE ? 0 : 1;
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      for (const name of POOL_FLOATS)
        this.poolRing[name][pool * columns + slot] = frame.poolFloats[name][pool * width + column];
    }
    this.sampledRing[slot] = sampled;
    const rejected = frame.head.rejections.filter(([, at]) => at === column);
    this.rejectionRing[slot] = rejected.length ? new Map(rejected.map(([pool, , codes]) => [pool, codes])) : null;
    this.bands.changed(index);
  }

  /** @param {number} index */
  #clearColumn(index) {
    const slot = index % this.columns;
    for (let row = 0; row < this.engines.length; row += 1) {
      for (const name of ENGINE_FLOATS) this.engineRing[name][row * this.columns + slot] = NaN;
      for (const name of ENGINE_BYTES) this.engineByteRing[name][row * this.columns + slot] = UNKNOWN_BYTE;
    }
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      for (const name of POOL_FLOATS) this.poolRing[name][pool * this.columns + slot] = NaN;
    }
    this.sampledRing[slot] = 0;
    this.rejectionRing[slot] = null;
    this.bands.changed(index);
  }

  /**
   * @param {number} by
   * @param {Float32Array} newest
   */
  #shiftHour(by, newest) {
    const width = this.hourColumns;
    for (let pool = 0; pool < this.pools.length; pool += 1) {
      const row = this.hour.subarray(pool * width, (pool + 1) * width);
      if (by > 0) {
        row.copyWithin(0, Math.min(by, width));
        row.fill(NaN, Math.max(0, width - by));
      }
      row[width - 1] = newest[pool];
    }
  }
}

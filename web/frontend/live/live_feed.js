/* Connects socket and state: applies frames, detects gaps and silence, and freezes the view while paused. */

import { isColumn, isKeyframe, readFrame } from './frame_reader.js';
import { FleetState } from './fleet_state.js';
import { LiveSocket } from './live_socket.js';

const SILENT_MS = 3000;
const TICK_MS = 500;

/** Calls onFrame(isKeyframe) after the state changed and onStatus() when status or its age changed. */
export class LiveFeed {
  /** @param {{ onFrame: (keyframe: boolean) => void, onStatus: () => void }} listener */
  constructor({ onFrame, onStatus }) {
    this.state = new FleetState();
    this.onFrame = onFrame;
    this.onStatus = onStatus;
    this.connection = 'connecting';
    this.paused = false;
    this.waiting = false;
    /** @type {number | null} Unix seconds of the newest sample received while paused. */
    this.newestAt = null;
    this.lastFrameMs = performance.now();
    const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
    this.socket = new LiveSocket(`${scheme}://${location.host}/ws/fleet`, {
      onFrame: (buffer) => this.#take(buffer),
      onStatus: (connection) => this.#connection(connection),
    });
    setInterval(() => this.#tick(), TICK_MS);
  }

  /** connecting, waiting, live, paused, silent, reconnecting or signed-out. */
  get status() {
    if (this.connection !== 'live') return this.connection;
    if (this.paused) return 'paused';
    if (this.state.at === null) return 'waiting';
    return this.silenceS > SILENT_MS / 1000 ? 'silent' : 'live';
  }

  /** Seconds since the last frame was received. */
  get silenceS() {
    return (performance.now() - this.lastFrameMs) / 1000;
  }

  /** Pause the view; the server keeps the history. */
  pause() {
    if (this.paused || this.state.index === null) return;
    this.paused = true;
    this.newestAt = this.state.at;
    this.onStatus();
  }

  /** Resume live from a keyframe, which has the missed columns. */
  resume() {
    this.paused = false;
    this.#askKeyframe();
    this.onStatus();
  }

  /** Seconds between the view and the newest sample received. */
  get behindS() {
    return this.paused ? Math.max(0, (this.newestAt ?? 0) - (this.state.at ?? 0)) + this.silenceS : 0;
  }

  /** A disconnected view advances in time: time without samples is a gap, and no longer "now". */
  #tick() {
    const { state } = this;
    if (
      !this.paused &&
      !document.hidden &&
      state.index !== null &&
      state.at !== null &&
      this.silenceS > SILENT_MS / 1000
    ) {
      const index = Math.floor((state.at + this.silenceS) / state.columnS);
      if (index > state.index) {
        state.advance(index);
        this.onFrame(false);
      }
    }
    this.onStatus();
  }

  #askKeyframe() {
    this.waiting = true;
    this.socket.askKeyframe();
  }

  /** @param {ArrayBuffer} buffer */
  #take(buffer) {
    this.lastFrameMs = performance.now();
    let frame;
    try {
      frame = readFrame(buffer, this.state.shape);
    } catch (error) {
      // The topology changed, or the server is newer: request a keyframe.
      console.warn('an unreadable frame:', error instanceof Error ? error.message : error);
      this.#askKeyframe();
      return;
    }
    if (this.paused) {
      this.newestAt = frame.head.at ?? this.newestAt;
      return;
    }
    if (isKeyframe(frame)) {
      this.waiting = false;
      this.state.applyKeyframe(frame);
    } else if (this.waiting) {
      return;
    } else if (!isColumn(frame) || !this.state.applyColumn(frame)) {
      this.#askKeyframe();
      return;
    }
    this.onFrame(isKeyframe(frame));
  }

  /** @param {string} connection */
  #connection(connection) {
    this.connection = connection;
    if (connection === 'live') this.waiting = true;
    this.onStatus();
  }
}

/* The websocket of the live feed: reconnects with backoff, requests keyframes, pauses in a hidden tab. */

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 8000;
const SIGNED_OUT = 4401;
const NO_ROLE = 4403;
const ROLES_CHANGED = 4409;

/**
 * Return the wait before attempt `attempt` (from 0), ms; `random` in 0..1 adds jitter.
 * @param {number} attempt
 * @param {number} random
 */
export function backoff(attempt, random) {
  return Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt) * (0.75 + 0.5 * random);
}

/** Calls onFrame(ArrayBuffer) and onStatus('live' | 'reconnecting' | 'signed-out'). */
export class LiveSocket {
  /**
   * @param {string} url
   * @param {{ onFrame: (buffer: ArrayBuffer) => void, onStatus: (connection: string) => void }} listener
   */
  constructor(url, { onFrame, onStatus }) {
    this.url = url;
    this.onFrame = onFrame;
    this.onStatus = onStatus;
    this.attempt = 0;
    /** @type {ReturnType<typeof setTimeout> | null} */
    this.timer = null;
    this.socket = this.#connect();
    document.addEventListener('visibilitychange', () => this.#say(document.hidden ? 'pause' : 'resume'));
    addEventListener('online', () => this.#connectNow());
  }

  /** Request a keyframe. */
  askKeyframe() {
    this.#say('keyframe');
  }

  #connect() {
    const socket = new WebSocket(this.url);
    socket.binaryType = 'arraybuffer';
    socket.onmessage = ({ data }) => {
      this.attempt = 0;
      this.onFrame(data);
    };
    socket.onopen = () => {
      this.onStatus('live');
      if (document.hidden) this.#say('pause');
    };
    socket.onclose = ({ code }) => this.#closed(code);
    return socket;
  }

  #connectNow() {
    if (!this.timer) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.socket = this.#connect();
  }

  /** @param {number} code */
  #closed(code) {
    if (code === SIGNED_OUT) {
      this.onStatus('signed-out');
      return;
    }
    if (code === NO_ROLE || code === ROLES_CHANGED) {
      // A role change also changes the page: its actions, its scope, or all of it.
      location.reload();
      return;
    }
    this.onStatus('reconnecting');
    this.timer = setTimeout(
      () => {
        this.timer = null;
        this.socket = this.#connect();
      },
      backoff(this.attempt, Math.random()),
    );
    this.attempt += 1;
  }

  /** @param {string} type */
  #say(type) {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type }));
  }
}

/* Keeps what is being typed in this browser until it is stored, so that a reload or a crash loses nothing. */

/** @typedef {{ user: string, slug: string, draft: string }} Who whose text it is, of which policy and draft */

const PREFIX = 'headway.policy.';
const MAX_TEXT = 64 * 1024;
const SUBMITTED = 'submitted';

/**
 * Each person's text per policy and opened draft is a text of its own.
 * @param {Who} who
 */
const keyOf = ({ user, slug, draft }) => `${PREFIX}${user}.${slug}.${draft || 'live'}`;
/** @param {Who} who */
const pointerOf = ({ user, slug }) => `${PREFIX}${user}.${slug}.${SUBMITTED}`;

/**
 * Remember {text, message, base} with the time; texts too long for a policy are not kept.
 * @param {Storage} storage
 * @param {Who} who
 * @param {{ text: string, message: string, base?: string, at?: number }} kept
 * @param {number} at
 */
export function keepText(storage, who, kept, at) {
  if (kept.text.length <= MAX_TEXT) write(storage, keyOf(who), JSON.stringify({ ...kept, at }));
}

/**
 * What was remembered, or null; unreadable remains are skipped.
 * @param {Storage} storage
 * @param {Who} who
 */
export function keptText(storage, who) {
  try {
    const kept = JSON.parse(storage.getItem(keyOf(who)) ?? 'null');
    return kept && typeof kept.text === 'string' && typeof kept.message === 'string' ? kept : null;
  } catch {
    return null;
  }
}

/**
 * Forget it: it is stored, or not wanted.
 * @param {Storage} storage
 * @param {Who} who
 */
export function dropText(storage, who) {
  remove(storage, keyOf(who));
}

/**
 * Note that the text was sent to be stored; whether it was shows on the page that answers.
 * @param {Storage} storage
 * @param {Who} who
 */
export function markSubmitted(storage, who) {
  write(storage, pointerOf(who), keyOf(who));
}

/**
 * On the page that answers: a text that led to another place than its own is stored, so it is forgotten.
 * @param {Storage} storage
 * @param {Who} who
 */
export function settleSubmitted(storage, who) {
  try {
    const sent = storage.getItem(pointerOf(who));
    if (sent && sent !== keyOf(who)) remove(storage, sent);
  } catch {
    return;
  }
  remove(storage, pointerOf(who));
}

// A full or forbidden storage costs the safety net, not the edit.
/**
 * @param {Storage} storage
 * @param {string} key
 * @param {string} value
 */
function write(storage, key, value) {
  try {
    storage.setItem(key, value);
  } catch {
    remove(storage, key);
  }
}

/**
 * @param {Storage} storage
 * @param {string} key
 */
function remove(storage, key) {
  try {
    storage.removeItem(key);
  } catch {
    return;
  }
}

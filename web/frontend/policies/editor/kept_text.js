/* Keeps typed text in this browser until the server stores it, so that a reload or a crash loses nothing. */

/** @typedef {{ user: string, slug: string, draft: string }} Who the author, policy, and draft of a text */

const PREFIX = 'headway.policy.';
const MAX_TEXT = 64 * 1024;
const SUBMITTED = 'submitted';

/**
 * Return the storage key: one text per user, policy, and opened draft.
 * @param {Who} who
 */
const keyOf = ({ user, slug, draft }) => `${PREFIX}${user}.${slug}.${draft || 'live'}`;
/** @param {Who} who */
const pointerOf = ({ user, slug }) => `${PREFIX}${user}.${slug}.${SUBMITTED}`;

/**
 * Store {text, message, base} with the time; texts too long for a policy are not kept.
 * @param {Storage} storage
 * @param {Who} who
 * @param {{ text: string, message: string, base?: string, at?: number }} kept
 * @param {number} at
 */
export function keepText(storage, who, kept, at) {
  if (kept.text.length <= MAX_TEXT) write(storage, keyOf(who), JSON.stringify({ ...kept, at }));
}

/**
 * Return the stored text, or null; invalid entries are skipped.
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
 * Delete the text: the server has it, or the user discarded it.
 * @param {Storage} storage
 * @param {Who} who
 */
export function dropText(storage, who) {
  remove(storage, keyOf(who));
}

/**
 * Mark the text as submitted; the response page shows whether it was stored.
 * @param {Storage} storage
 * @param {Who} who
 */
export function markSubmitted(storage, who) {
  write(storage, pointerOf(who), keyOf(who));
}

/**
 * On the response page: delete the text if the response is a page other than its own.
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

// Full or forbidden storage disables the backup, not the edit.
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

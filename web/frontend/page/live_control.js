/* Live, paused, reconnecting: the control in the top bar and the words in the bottom line. */

import { NARROW, ago, clock } from '../figures/format.js';
import { byId, setText } from './element.js';

const whole = (value) => `${Math.floor(value)}${NARROW}s`;

/** What the control says for a status. */
export function liveWords(status, { at, silenceS, behindS }) {
  switch (status) {
    case 'live': return 'Live';
    case 'paused': return `Paused ${clock(at)}, ${whole(behindS)} behind`;
    case 'silent': return `No sample for ${whole(silenceS)}`;
    case 'reconnecting': return `Reconnecting, ${whole(silenceS)}`;
    case 'signed-out': return 'Signed out, sign in again';
    case 'waiting': return 'Waiting for data';
    default: return 'Connecting';
  }
}

export class LiveControl {
  constructor(feed) {
    this.feed = feed;
    byId('live-button').addEventListener('click', () => (feed.status === 'signed-out'
      ? location.assign(`/login?next=${encodeURIComponent(location.pathname + location.search)}`)
      : this.feed.paused && feed.resume()));
    byId('pause-button').addEventListener('click', () => this.toggle());
  }

  toggle() {
    if (this.feed.paused) this.feed.resume();
    else this.feed.pause();
  }

  update() {
    const { status, state } = this.feed;
    byId('live-control').dataset.state = status;
    byId('fleet').dataset.state = status;
    setText(byId('live-words'), liveWords(status, { at: state.at, silenceS: this.feed.silenceS, behindS: this.feed.behindS }));
    byId('live-button').setAttribute('aria-pressed', String(status === 'live'));
    byId('pause-button').setAttribute('aria-pressed', String(this.feed.paused));
    byId('pause-button').querySelector('use').setAttribute('href', this.feed.paused ? '#i-play' : '#i-pause');
    setText(byId('status-live'), { live: 'Live', paused: 'Paused', silent: 'No samples', reconnecting: 'Live view lost', waiting: 'No samples yet', 'signed-out': 'Signed out' }[status] ?? 'Connecting');
    setText(byId('status-age'), state.at == null ? '' : ` · last sample ${ago(this.feed.silenceS)}`);
  }
}

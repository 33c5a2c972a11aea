/* Entry of the policy pages: the editor, its question, the comparison and the three-way view. */

import { startCopy } from './copy.js';
import { startEditor } from './editor.js';
import { settleSubmitted } from './kept_text.js';
import { listenToPolicyKeys } from './keys.js';
import { startQuestion } from './question.js';
import { followReach, watchLive } from './standing.js';
import { startCountdown } from './when.js';

const page = document.getElementById('policy');
const area = document.getElementById('document');
const button = document.getElementById('copy-json');
const question = document.getElementById('question');
const banner = document.getElementById('reach');
const actions = page ? startEditor(page) : {};
if (button && area) actions.copy = startCopy(button, area);
const link = document.getElementById('whatif-link');
if (link) actions.whatif = () => link.click();
listenToPolicyKeys(actions);
if (question) startQuestion(question);
const scheduled = document.getElementById('schedule-at');
if (scheduled) startCountdown(scheduled, document.getElementById('schedule-until'));
if (page && banner) followReach(banner, page.dataset.state);
if (page) {
  watchLive(page.dataset.state, page.dataset.live, ({ live, author, ago }) => {
    const told = document.getElementById('overtaken');
    told.querySelector('span').textContent = `${author} published v${live} ${ago}. What you type is kept; on publishing you merge both, and nothing is overwritten.`;
    told.hidden = false;
  });
}
const merge = document.getElementById('merge');
if (merge) settleSubmitted(localStorage, { user: merge.dataset.user, slug: merge.dataset.slug, draft: 'merge' });
merge?.querySelector('#error-summary')?.focus();

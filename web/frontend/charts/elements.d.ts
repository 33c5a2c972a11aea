// Tag names of our pictures, which give the page's queries their types.
import type { Heat } from './heat.js';
import type { Hour } from './hour.js';
import type { Lines } from './lines.js';
import type { Overlay } from './overlay.js';
import type { Rates } from './rates.js';
import type { Spark } from './spark.js';
import type { Unbound } from './unbound.js';
import type { Steps } from '../automation/steps.js';

declare global {
  interface HTMLElementTagNameMap {
    'hw-heat': Heat;
    'hw-hour': Hour;
    'hw-lines': Lines;
    'hw-overlay': Overlay;
    'hw-rates': Rates;
    'hw-spark': Spark;
    'hw-steps': Steps;
    'hw-unbound': Unbound;
  }
}

/* Entry of every page: the shell's controls, and the Fleet page if present. */

import './charts/heat.js';
import './charts/hour.js';
import './charts/lines.js';
import './charts/overlay.js';
import './charts/rates.js';
import './charts/spark.js';
import './charts/unbound.js';
import { startFleetPage } from './fleet/fleet_page.js';
import { listenToShellKeys } from './shell/keys.js';
import { startMenus } from './shell/menus.js';
import { labelCells } from './shell/stacked_tables.js';
import { startPalette } from './shell/palette.js';
import { startTheme } from './shell/theme.js';
import { keepTimeZone } from './shell/time_zone.js';

keepTimeZone();
startTheme(document.getElementById('theme-button'));
startMenus();
startPalette();
labelCells(document);
listenToShellKeys();
if (document.getElementById('fleet')) startFleetPage();

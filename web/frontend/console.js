/* Entry of every page: the shell's controls, and the Fleet page where it is. */

import './pictures/heat.js';
import './pictures/hour.js';
import './pictures/lines.js';
import './pictures/overlay.js';
import './pictures/rates.js';
import './pictures/spark.js';
import './pictures/unbound.js';
import { startFleetPage } from './page/fleet_page.js';
import { listenToShellKeys } from './page/keys.js';
import { startMenus } from './shell/menus.js';
import { startTheme } from './shell/theme.js';

startTheme(document.getElementById('theme-button'));
startMenus();
listenToShellKeys();
if (document.getElementById('fleet')) startFleetPage();

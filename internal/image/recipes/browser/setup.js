// Runs once, when the image is built: lets Playwright find Chromium, and Chromium
// the certificates that the host added.
'use strict';
const fs = require('fs');
const path = require('path');
const { execFileSync } = require('child_process');

const browsers = '/usr/local/lib/playwright';
const program = '/usr/lib/chromium/chromium-headless-shell';

async function main() {
	process.env.PLAYWRIGHT_BROWSERS_PATH = browsers;
	const { chromium } = require('/node_modules/playwright-core');
	// Where Playwright looks it says when there is nothing: one place for the shell, one for the rest.
	for (const headless of [true, false]) {
		const said = await chromium.launch({ headless }).then(() => '', (err) => err.message);
		const found = /Executable doesn't exist at (\/.*)/.exec(said);
		if (!found) throw new Error('Playwright does not say where it looks for Chromium: ' + said);
		link(found[1]);
		const dir = path.relative(browsers, found[1]).split('/')[0];
		fs.writeFileSync(path.join(browsers, dir, 'INSTALLATION_COMPLETE'), ''); // nothing to download
	}
	link('/opt/google/chrome/chrome'); // where every version looks for the channel "chrome"
	fs.appendFileSync('/etc/environment', `PLAYWRIGHT_BROWSERS_PATH=${browsers}\n`);
	trust('/etc/ssl/holt-host-certificates.pem', '/usr/local/lib/browser/nssdb');
}

function link(name) {
	fs.mkdirSync(path.dirname(name), { recursive: true });
	fs.symlinkSync(program, name);
}

// trust makes a database, as Chromium reads it, of the certificates of a PEM file.
function trust(file, dir) {
	if (!fs.existsSync(file)) return;
	fs.mkdirSync(dir, { recursive: true });
	execFileSync('certutil', ['-d', 'sql:' + dir, '-N', '--empty-password']);
	const blocks = fs.readFileSync(file, 'utf8').match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) || [];
	blocks.forEach((block, i) => execFileSync('certutil', ['-d', 'sql:' + dir, '-A', '-t', 'C,,', '-n', 'holt-host-' + i], { input: block + '\n' }));
	for (const name of fs.readdirSync(dir)) fs.chmodSync(path.join(dir, name), 0o644);
}

main().catch((err) => {
	console.error(err);
	process.exit(1);
});

#!/usr/bin/env node
// browser: asks the computer's Chromium something, through Playwright.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const consumers = require('stream/consumers');
const { parseArgs } = require('util');

const home = path.join(os.homedir(), 'browser');
const help = `Usage: browser [--trace] COMMAND

  open URL             go to a page; says its title and address
  text [SELECTOR]      what the page, or a part of it, says
  click SELECTOR       click, and wait for where that leads; what is downloaded is kept
  fill SELECTOR TEXT   type into a field
  shot [FILE]          a picture of what is seen, as PNG; --full: of the whole page
  run FILE             run JavaScript with page, context and browser; - reads it from
                       standard input; what it returns is printed

All commands mean the newest tab. Selectors are Playwright's: css, text=, role=.
--trace records what is done, to be looked at with: npx playwright show-trace FILE

Everything is in ~/browser: profile, downloads, shots, traces. Chromium starts with the
first command (chromium.service); a script of your own finds it at http://localhost:9222:

  const { chromium } = require('playwright-core');
  const browser = await chromium.connectOverCDP('http://localhost:9222');
  const page = browser.contexts()[0].pages()[0];

or starts one for itself with chromium.launch().
`;

// How many arguments each command takes: at least, at most.
const commands = { open: [1, 1], text: [0, 1], click: [1, 1], fill: [2, 2], shot: [0, 1], run: [1, 1] };

// Pages are slow where a processor is emulated; milliseconds.
const patience = 300_000;

// fresh names a new file in one of the browser's directories.
function fresh(dir, ending) {
	const stem = new Date().toISOString().replace(/[-:]|\..*/g, '');
	for (let n = 0; ; n++) {
		const file = path.join(home, dir, stem + (n ? '-' + n : '') + ending);
		if (!fs.existsSync(file)) return file;
	}
}

// keep waits for the end of a download and puts it into the workspace.
async function keep(download) {
	const { name, ext } = path.parse(path.basename(download.suggestedFilename()));
	for (let n = 0; ; n++) {
		const file = path.join(home, 'downloads', name + (n ? '-' + n : '') + ext);
		if (fs.existsSync(file)) continue;
		await download.saveAs(file);
		return file;
	}
}

async function where(page) {
	return `${await page.title()}\n${page.url()}`;
}

const does = {
	async open({ page }, url) {
		await page.goto(/^([a-z]+:\/\/|about:|data:)/i.test(url) ? url : 'http://' + url);
		return where(page);
	},
	text: ({ page }, selector = 'body') => page.locator(selector).first().innerText(),
	async click({ page }, selector) {
		await page.click(selector);
		await page.waitForLoadState();
		return where(page);
	},
	async fill({ page }, selector, text) {
		await page.fill(selector, text);
	},
	async shot({ page, full }, file = fresh('shots', '.png')) {
		await page.screenshot({ path: file, fullPage: full });
		return file;
	},
	async run(scope, file) {
		// Playwright has made standard input non-blocking, so readFileSync would find nothing yet.
		const text = (file === '-' ? await consumers.text(process.stdin) : fs.readFileSync(file, 'utf8')).replace(/^#!.*/, '');
		const AsyncFunction = (async () => {}).constructor;
		const said = await new AsyncFunction('page', 'context', 'browser', 'require', text)(scope.page, scope.context, scope.browser, require);
		return typeof said === 'object' ? JSON.stringify(said, null, 2) : said;
	},
};

async function main(command, args, { trace, full }) {
	const { chromium } = require('playwright-core');
	const browser = await chromium.connectOverCDP('http://localhost:9222', { timeout: patience });
	try {
		const [context] = browser.contexts();
		context.setDefaultTimeout(patience);
		const downloads = [];
		const watch = (page) => page.on('download', (one) => downloads.push(keep(one)));
		context.pages().forEach(watch);
		context.on('page', watch);
		const page = context.pages().at(-1) ?? (await context.newPage());
		if (trace) await context.tracing.start({ screenshots: true, snapshots: true });
		try {
			const said = await does[command]({ browser, context, page, full }, ...args);
			if (said !== undefined) console.log(said);
			for (const file of await Promise.all(downloads)) console.log(file);
		} finally {
			if (trace) {
				const file = fresh('traces', '.zip');
				await context.tracing.stop({ path: file });
				console.log(file);
			}
		}
	} finally {
		await browser.close(); // the connection
	}
}

let given;
try {
	given = parseArgs({ allowPositionals: true, options: {
		help: { type: 'boolean', short: 'h' }, trace: { type: 'boolean' }, full: { type: 'boolean' },
	} });
	const [command, ...args] = given.positionals;
	const takes = Object.hasOwn(commands, command ?? '') && commands[command];
	if (!given.values.help && (!takes || args.length < takes[0] || args.length > takes[1])) throw new Error('browser --help says what there is');
} catch (err) {
	console.error(err.message);
	process.exit(2);
}
if (given.values.help) {
	process.stdout.write(help);
} else {
	const [command, ...args] = given.positionals;
	main(command, args, given.values).catch((err) => {
		console.error(err.message);
		process.exit(1);
	});
}

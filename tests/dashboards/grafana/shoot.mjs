// SPDX-License-Identifier: Apache-2.0
// Takes pictures of pages: node shoot.mjs CHROMIUM JSON, where JSON is [{url, file, width, height?}]; without a height the whole board. Prints for each what
// failed and which panels are empty, as JSON.
import { chromium } from 'playwright-core';

const [executablePath, wanted] = process.argv.slice(2);
const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--force-color-profile=srgb', '--hide-scrollbars'] });
const told = [];
for (const { url, file, width, height } of JSON.parse(wanted)) {
  const page = await browser.newPage({ viewport: { width, height: 1200 } });
  const said = [];
  page.on(
    'console',
    (message) => message.type() === 'error' && !message.text().startsWith('Failed to load') && said.push(message.text().slice(0, 600)),
  );
  page.on(
    'response',
    (response) =>
      response.status() >= 400 && !response.url().includes('/public/') && said.push(`${response.status()} ${response.url().slice(0, 200)}`),
  );
  await page.goto(url);
  await page.waitForFunction(() => window.__height || window.__errors?.length, undefined, { timeout: 60000 });
  await page.setViewportSize({ width, height: Math.round((await page.evaluate(() => window.__height)) || 1200) });
  await page.waitForFunction(() => window.__done, undefined, { timeout: 120000 }).catch(() => {});
  const whole = await page.evaluate(() => ({
    done: Boolean(window.__done),
    errors: window.__errors,
    empty: window.__empty,
    annotations: (window.__annotations || []).map((each) => each.text),
  }));
  await page.screenshot({ path: file, clip: height ? { x: 0, y: 0, width, height } : undefined });
  told.push({ file, ...whole, errors: [...whole.errors, ...said] });
  await page.close();
}
await browser.close();
console.log(JSON.stringify(told));

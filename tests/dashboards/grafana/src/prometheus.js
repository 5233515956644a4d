// SPDX-License-Identifier: Apache-2.0
// A Prometheus data source for the browser: what Grafana's own does on its server.
import * as D from '@grafana/data';
import { RuntimeDataSource } from '@grafana/scenes';
import { errors } from './environment.js';

const fill = (format, labels) => format.replace(/\{\{\s*([^}\s]+)\s*\}\}/g, (_, name) => labels[name] || name);
const named = (target, labels) => {
  if (target.legendFormat && target.legendFormat !== '__auto') return fill(target.legendFormat, labels);
  const text = Object.entries(labels)
    .filter(([name]) => name !== '__name__')
    .map(([name, value]) => `${name}="${value}"`)
    .join(', ');
  return text ? `{${text}}` : 'Value';
};

export async function ask(path, parameters) {
  const answer = await (await fetch(`/api/v1/${path}?${new URLSearchParams(parameters)}`)).json();
  if (answer.status !== 'success') {
    errors.push(`${parameters.query}: ${answer.error}`);
    throw new Error(answer.error);
  }
  return answer.data;
}

// Grafana's variables of time; `step` in seconds.
export const timed = (expression, range, step) =>
  expression
    .replaceAll('$__rate_interval', `${Math.max(4 * SCRAPE, step + SCRAPE)}s`)
    .replaceAll('$__interval', `${step}s`)
    .replaceAll('$__range', `${Math.round((range.to.valueOf() - range.from.valueOf()) / 1000)}s`);
export const SCRAPE = 5; // seconds, as the data source of a server is told

function tableOf(target, result, single) {
  const labels = [...new Set(result.flatMap((series) => Object.keys(series.metric)))].sort();
  const fields = [
    { name: 'Time', type: 'time', values: result.map((series) => series.value[0] * 1000) },
    ...labels.map((name) => ({ name, type: 'string', values: result.map((series) => series.metric[name] ?? '') })),
    { name: single ? 'Value' : `Value #${target.refId}`, type: 'number', values: result.map((series) => +series.value[1]) },
  ];
  return D.toDataFrame({ refId: target.refId, fields, meta: { type: 'table' } });
}

export class Prometheus extends RuntimeDataSource {
  constructor(interpolate) {
    super('prometheus', 'prometheus');
    this.interpolate = interpolate;
  }

  async query(request) {
    const data = [];
    const { range, targets } = request;
    for (const target of targets) {
      const step = Math.max(SCRAPE, Math.round((request.intervalMs || 1000) / 1000));
      const query = timed(this.interpolate(target.expr), range, step);
      const end = range.to.valueOf() / 1000;
      const { result } = target.instant
        ? await ask('query', { query, time: end })
        : await ask('query_range', { query, start: Math.floor(range.from.valueOf() / 1000 / step) * step, end: Math.floor(end / step) * step, step });
      if (target.format === 'table') {
        if (result.length) data.push(tableOf(target, result, targets.length === 1));
        continue;
      }
      for (const series of result) {
        const points = series.values || [series.value];
        const name = named(target, series.metric);
        const values = {
          name: 'Value',
          type: 'number',
          labels: series.metric,
          config: { displayNameFromDS: name },
          values: points.map(([, value]) => (Number.isFinite(+value) ? +value : null)),
        };
        data.push(
          D.toDataFrame({
            refId: target.refId,
            name,
            fields: [{ name: 'Time', type: 'time', config: { interval: step * 1000 }, values: points.map(([time]) => time * 1000) }, values],
            meta: { custom: { step } },
          }),
        );
      }
    }
    return { data };
  }

  testDatasource() {
    return Promise.resolve({ status: 'success', message: '' });
  }

  // label_values(METRIC, LABEL) and query_result(QUERY), as variables ask them.
  async metricFindQuery(query, options) {
    const text = this.interpolate(query.query || query);
    const range = options.range || window.__range;
    const span = { start: range.from.valueOf() / 1000, end: range.to.valueOf() / 1000 };
    const values = /^label_values\((.*),\s*(\w+)\)$/.exec(text);
    if (values) return (await ask(`label/${values[2]}/values`, { 'match[]': values[1], ...span })).map((value) => ({ text: value }));
    const { result } = await ask('query', { query: /^query_result\((.*)\)$/.exec(text)[1], time: span.end });
    return result.map((series) => ({ text: `{} ${series.value[1]} ${series.value[0] * 1000}` }));
  }
}

// Draws one dashboard as Grafana would, with Grafana's own components (@grafana/ui, @grafana/data): its panels, frames, units,
// thresholds, legends, overrides and transformations. What Grafana keeps to itself, and is therefore written here: where panels
// lie, how answers of Prometheus become frames, and the heatmap. Without: variables, annotations, links, anything that reacts.
//
// The page is given `dashboard` (its JSON), `answers` (panel's id -> refId -> result) and `range` (from_ms, to_ms, step_ms).

import { FieldType, Registry, ThemeContext, applyFieldOverrides, applyNullInsertThreshold, cacheFieldDisplayNames, createTheme,
  dateTime, formattedValueToString, getDisplayValueAlignmentFactors, getFieldDisplayValues, getValueFormat, standardTransformers,
  standardTransformersRegistry, toDataFrame, transformDataFrame } from '@grafana/data';
import { AxisPlacement, BarGauge, BigValue, GlobalStyles, PanelChrome, ScaleDirection, ScaleOrientation, TimeSeries,
  UPlotChart, UPlotConfigBuilder, VizRepeater } from '@grafana/ui';
import { TableNG } from '@grafana/ui/unstable';
import { interpolateOranges } from 'd3';
import { createRoot } from 'react-dom/client';
import { lastValueFrom } from 'rxjs';

// Grafana's grid: 24 columns; a unit of height, and what is between panels, in pixels.
const COLUMNS = 24, UNIT = 30, GAP = 8;
const ZONE = 'utc';
const theme = createTheme({ colors: { mode: 'light' } });

// What a panel's fieldConfig may say, as Grafana's panels register it: standard properties and, under `custom`, their own.
const STANDARD = ['unit', 'min', 'max', 'decimals', 'displayName', 'noValue', 'color', 'thresholds', 'mappings', 'links'];
const CUSTOM_DEFAULTS = {
  timeseries: { axisPlacement: 'auto', axisLabel: '', axisColorMode: 'text', scaleDistribution: { type: 'linear' },
    gradientMode: 'none', pointSize: 5, barAlignment: 0, hideFrom: { tooltip: false, viz: false, legend: false } },
  table: { align: 'auto', inspect: false, cellOptions: { type: 'auto' } },
};

function makeRegistry(fieldConfig) {
  const custom = new Set([...Object.keys(fieldConfig.defaults.custom), ...fieldConfig.overrides.flatMap(({ properties }) =>
    properties.filter(({ id }) => id.startsWith('custom.')).map(({ id }) => id.slice('custom.'.length)))]);
  const makeItem = (id, path, isCustom) => ({ id, path, name: id, isCustom, process: (value) => value, shouldApply: () => true });
  return new Registry(() => [...STANDARD.map((id) => makeItem(id, id, false)),
    ...[...custom].map((name) => makeItem(`custom.${name}`, name, true))]);
}

// Grafana's data source names series by the legend's format.
const formatLegend = (format, labels) => format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => labels[name] ?? '');

const toNumber = (text) => Number.isFinite(Number(text)) ? Number(text) : null;

function makeSeries({ refId, legendFormat }, result, step_ms) {
  return result.map(({ metric, values, value }) => toDataFrame({ refId, fields: [
    { name: 'Time', type: FieldType.time, values: (values ?? [value]).map(([seconds]) => Math.round(seconds * 1000)),
      config: { interval: step_ms } },  // by which gaps are found
    { name: 'Value', type: FieldType.number, labels: metric, values: (values ?? [value]).map(([, text]) => toNumber(text)),
      config: legendFormat ? { displayNameFromDS: formatLegend(legendFormat, metric) } : {} }] }));
}

// One frame per query: Time, a column per label, then the value, which bears the query's letter only where there are several.
function makeTable({ refId }, result, queries) {
  const labels = [...new Set(result.flatMap(({ metric }) => Object.keys(metric).sort()))];
  return toDataFrame({ refId, fields: [
    { name: 'Time', type: FieldType.time, values: result.map(({ value }) => value[0] * 1000) },
    ...labels.map((label) => ({ name: label, type: FieldType.string, values: result.map(({ metric }) => metric[label] ?? '') })),
    { name: queries > 1 ? `Value #${refId}` : 'Value', type: FieldType.number, values: result.map(({ value }) => Number(value[1])) }] });
}

async function makeFrames(panel, answers, { from_ms, to_ms, step_ms }) {
  let frames = panel.targets.flatMap((target) => panel.type === 'table'
    ? makeTable(target, answers[target.refId], panel.targets.length) : makeSeries(target, answers[target.refId], step_ms));
  if (panel.transformations.length) {
    frames = await lastValueFrom(transformDataFrame(panel.transformations, frames));
  }
  if (panel.type === 'timeseries') {
    frames = frames.map((frame) => applyNullInsertThreshold({ frame, refFieldPseudoMin: from_ms, refFieldPseudoMax: to_ms }));
  }
  const { defaults, overrides } = panel.fieldConfig;
  const steps = defaults.thresholds.steps.map((step) => ({ ...step, value: step.value ?? -Infinity }));
  const fieldConfig = { overrides, defaults: { ...defaults, thresholds: { ...defaults.thresholds, steps },
    custom: { ...CUSTOM_DEFAULTS[panel.type], ...defaults.custom } } };
  panel.fieldConfig = fieldConfig;
  const drawn = applyFieldOverrides({ data: frames, fieldConfig, fieldConfigRegistry: makeRegistry(fieldConfig),
    replaceVariables: (text) => text, theme, timeZone: ZONE });
  cacheFieldDisplayNames(drawn);
  return drawn;
}

function getValues(panel, frames) {
  return getFieldDisplayValues({ fieldConfig: panel.fieldConfig, reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text, theme, data: frames, timeZone: ZONE, sparkline: panel.options.graphMode === 'area' });
}

function repeat(panel, frames, width, height, renderValue) {
  const { orientation, minVizWidth, minVizHeight, maxVizHeight } = panel.options;
  return <VizRepeater source={frames} getValues={() => getValues(panel, frames)} renderCounter={1} width={width} height={height}
    orientation={orientation} autoGrid={panel.type === 'stat'} itemSpacing={3} minVizWidth={minVizWidth} minVizHeight={minVizHeight}
    maxVizHeight={maxVizHeight} getAlignmentFactors={getDisplayValueAlignmentFactors} renderValue={renderValue} />;
}

const DRAW = {
  timeseries: (panel, frames, range, width, height) => <TimeSeries frames={frames} structureRev={1} timeRange={range} timeZone={ZONE}
    width={width} height={height} legend={panel.options.legend} options={panel.options} />,
  stat: (panel, frames, range, width, height) => repeat(panel, frames, width, height, (item) => <BigValue {...panel.options}
    value={item.value.display} sparkline={item.value.sparkline} count={item.count} alignmentFactors={item.alignmentFactors}
    width={item.width} height={item.height} theme={theme} />),
  bargauge: (panel, frames, range, width, height) => repeat(panel, frames, width, height, (item) => <BarGauge
    value={item.value.display} field={item.value.field} display={item.value.view?.getFieldDisplayProcessor(item.value.colIndex)}
    width={item.width} height={item.height} orientation={item.orientation} alignmentFactors={item.alignmentFactors}
    displayMode={panel.options.displayMode} showUnfilled={panel.options.showUnfilled} valueDisplayMode={panel.options.valueMode}
    isOverflow={false} theme={theme} />),
  table: (panel, frames, range, width, height) => <TableNG data={frames[0]} width={width} height={height} timeRange={range}
    cellHeight={panel.options.cellHeight} noHeader={!panel.options.showHeader} initialSortBy={panel.options.sortBy}
    fieldConfig={panel.fieldConfig} structureRev={1} enableVirtualization={false} />,
  heatmap: drawHeatmap,
};

// Cumulative buckets by `le` -> what is in each, drawn as cells; darker is more.
function drawHeatmap(panel, frames, range, width, height) {
  const bounds = frames.map((frame) => ({ bound: Number(frame.fields[1].labels.le.replace('+Inf', 'Infinity')), frame }))
    .sort((a, b) => a.bound - b.bound);
  const times = [...new Set(frames.flatMap((frame) => frame.fields[0].values))].sort((a, b) => a - b);
  const columns = bounds.map(({ frame }) => new Map(frame.fields[0].values.map((time, row) => [time, frame.fields[1].values[row]])));
  const cells = columns.map((column, row) => times.map((time) => (column.get(time) ?? 0) - (columns[row - 1]?.get(time) ?? 0)));
  const most = Math.max(...cells.flat());
  const format = (bound) => bound === Infinity ? '+Inf' : formattedValueToString(getValueFormat(panel.options.yAxis.unit)(bound));
  const builder = new UPlotConfigBuilder(ZONE);
  builder.addScale({ scaleKey: 'x', isTime: true, orientation: ScaleOrientation.Horizontal, direction: ScaleDirection.Right,
    range: () => [range.from.valueOf(), range.to.valueOf()] });
  builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up,
    range: () => [0, bounds.length] });
  builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: ZONE, theme });
  builder.addAxis({ scaleKey: 'y', placement: AxisPlacement.Left, theme, grid: { show: false },
    splits: () => bounds.map((_, row) => row + 1),
    values: (_, splits) => splits.map((split) => split % 2 ? '' : format(bounds[split - 1].bound)) });
  builder.addSeries({ scaleKey: 'y', theme, show: true, pathBuilder: () => null, pointSize: 0 });
  builder.addHook('draw', (plot) => cells.forEach((row, y) => row.forEach((count, x) => {
    if (count > panel.options.filterValues.le) {
      const left = plot.valToPos(times[Math.max(x - 1, 0)], 'x', true), top = plot.valToPos(y + 1, 'y', true);
      plot.ctx.fillStyle = interpolateOranges(Math.max(0.1, (count / most) ** panel.options.color.exponent));
      plot.ctx.fillRect(left, top, plot.valToPos(times[x], 'x', true) - left - 1, plot.valToPos(y, 'y', true) - top - 1);
    }
  })));
  return <UPlotChart config={builder} data={[times, times.map(() => null)]} width={width} height={height} />;
}

const isEmpty = (frames) => !frames.some((frame) => frame.length);

function Panel({ panel, frames, range, column }) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * (column + GAP) - GAP, height = h * (UNIT + GAP) - GAP;
  const place = { position: 'absolute', left: x * (column + GAP), top: y * (UNIT + GAP), width, height };
  if (panel.type === 'row') {
    return <div style={{ ...place, ...theme.typography.h5, display: 'flex', alignItems: 'center' }}>⌄&nbsp; {panel.title}</div>;
  }
  return <div style={place} data-panel={panel.title} data-empty={isEmpty(frames)}>
    <PanelChrome title={panel.title} description={panel.description} width={width} height={height}
      padding={panel.type === 'table' ? 'none' : 'md'}>
      {(width, height) => isEmpty(frames)
        ? <div style={{ ...theme.typography.bodySmall, textAlign: 'center', paddingTop: height / 3 }}>No data</div>
        : DRAW[panel.type](panel, frames, range, width, height)}
    </PanelChrome></div>;
}

function Dashboard({ dashboard, frames, range, width }) {
  const column = (width - GAP * (COLUMNS - 1)) / COLUMNS;
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <div style={{ padding: 2 * GAP, background: theme.colors.background.canvas }}>
      <h4 style={{ margin: `0 0 ${GAP}px` }}>{dashboard.title}</h4>
      <div style={{ position: 'relative', width, height: rows * (UNIT + GAP) - GAP }}>
        {dashboard.panels.map((panel) => <Panel key={panel.id} {...{ panel, frames: frames[panel.id], range, column }} />)}
      </div>
    </div>
  </ThemeContext.Provider>;
}

// Called by picture.py. Answers when all that is asked for is in the page; charts need a moment more.
window.draw = async ({ dashboard, answers, range, width }) => {
  const transformers = new Map(Object.values(standardTransformers).map((transformation) => [transformation.id,
    { id: transformation.id, name: transformation.name, transformation, aliasIds: [] }]));  // some stand there twice
  standardTransformersRegistry.setInit(() => [...transformers.values()]);
  await document.fonts.load('14px Inter');
  const frames = {};
  for (const panel of dashboard.panels.filter(({ type }) => type !== 'row')) {
    frames[panel.id] = await makeFrames(panel, answers[panel.id], range);
  }
  const [from, to] = [dateTime(range.from_ms), dateTime(range.to_ms)];
  createRoot(document.querySelector('#dashboard')).render(
    <Dashboard {...{ dashboard, frames, width }} range={{ from, to, raw: { from, to } }} />);
};

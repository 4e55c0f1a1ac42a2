// The page of the studio. It draws what the server says and sends what the user decides; texts are set as text, never
// as HTML. Margins move with the sliders by a factor that the server has computed for every step.

const $ = (id) => document.getElementById(id);
const RUNNING = 500; // milliseconds between looks while a run goes on
const IDLE = 2500;
const NO_MARGIN =
  "Margins of means, percentages and quantiles depend on the data. To ask for one, say what count is expected.";
const ASSUMED = "Those shown are at counts as the table expects them, with all values equally common.";
const NOISE_ONLY =
  "Of some values only the bin is known: margins of their sums and means are of the noise alone. A release also has " +
  "intervals that cover noise and bins.";

const token = ownToken();
let state = null; // what the server said about the file, the ledger and the publication
let outlook = { state: "none" }; // the margins by the saved plan
let step = null; // the budget that the slider is on, as the server described it
let wanted = new Map(); // margins that are not saved yet, by table; null takes one away
let rows = new Map(); // the parts of each table that move with the sliders
let editing = null; // the name of the table in the dialog; null for a new one
const PERCENT = ["row", "column", "total"];
const COUNTED = ["sql", "marginals", "ranges", "sum", "mean", "quantiles", "percent"];
let sets = []; // the combinations of attributes in the dialog
let offered = null;
let lost = false; // whether the server did not answer
let late = null; // a digest that differs from the page's while the user has something unsaved

// --- Speaking with the server ---------------------------------------------------------------------------------------

function ownToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", "/"); // the address is not for anyone who looks at the screen
  }
  return given ?? sessionStorage.getItem("token") ?? "";
}

class Refused extends Error {
  constructor(code, said) {
    super(said.error ?? "The studio answered with an error.");
    this.code = code;
    this.changed = said.changed === true;
  }
}

async function ask(path, body) {
  const headers = { "x-hdmm-token": token };
  if (state) headers["if-match"] = `"${state.digest}"`;
  const options = body === undefined ? { headers } : { method: "POST", headers, body: JSON.stringify(body) };
  const answer = await fetch(`/api/${path}`, options);
  const said = await answer.json();
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

async function refresh() {
  show(await ask("state"));
  await refreshOutlook();
}

async function saved(said, text) {
  show(said);
  await refreshOutlook();
  say(said.told ? `${text} ${said.told}` : text);
  if (said.told) $("notices").append(notice(said.told, "calm"));
}

async function refreshOutlook() {
  if (state.error) return;
  const shown = state.digest;
  if (outlook.state === "none") $("plan-text").textContent = "Looking for a saved plan…";
  const found = await ask("outlook");
  if (shown !== state.digest) return;
  outlook = found;
  drawTables();
  move();
  drawRuns();
}

async function beat() {
  let wait = IDLE;
  try {
    const said = await ask("pulse");
    if (lost) {
      lost = false;
      await refresh();
    }
    const before = runs();
    state.plan = said.plan;
    state.release = said.release;
    if (state.error) await refresh(); // which may be mended elsewhere than in the file
    else if (said.digest !== state.digest) await changed(said.digest);
    if (runs() !== before) {
      await refresh();
      announceRuns();
    }
    drawRuns();
    drawBanner();
    if (running(state.plan) || running(state.release)) wait = RUNNING;
  } catch (wrong) {
    lost = !(wrong instanceof Refused);
    if (wrong instanceof Refused) banner(wrong.message);
    else drawBanner();
  }
  setTimeout(beat, document.hidden ? 4 * wait : wait);
}

const running = (run) => run?.state === "running";
const runs = () => [state.plan, state.release].map((run) => `${run?.kind} ${run?.state}`).join();

async function changed(digest) {
  const busy = unsaved() || document.querySelector("dialog[open]");
  late = busy ? digest : null;
  if (!busy) {
    await refresh();
    say("The file changed, and is shown as it is now.");
  }
}

const unsaved = () => !state.error && (wanted.size > 0 || (step !== null && step.value !== state.privacy.value));

// --- Drawing --------------------------------------------------------------------------------------------------------

function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("aria-") || name === "for" || name === "role") made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function button(name, go, properties = {}) {
  return make("button", { type: "button", class: "plain", onclick: go, ...properties }, name);
}

const pair = ([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value));

function say(text) {
  $("live").textContent = text;
}

function put(id, text) {
  $(id).textContent = text ?? "";
  $(id).hidden = !text;
}

function number(value) {
  if (value === null || value === undefined) return "–";
  // Sums of amounts may have fifteen digits; there is room for eight.
  const large = { notation: "compact", maximumSignificantDigits: 4 };
  const digits = value >= 1e7 ? large : value >= 1000 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 };
  return value.toLocaleString("en", digits);
}

const whole = (value) => value.toLocaleString("en");
const plural = (count, one, many) => `${whole(count)} ${count === 1 ? one : many}`;

function show(said) {
  const first = state === null;
  const before = state;
  state = said;
  late = null;
  $("source").textContent = said.error ? said.file : `${said.file} · dataset ${said.dataset}`;
  $("main").hidden = Boolean(said.error);
  if (said.error) {
    $("title").textContent = said.line === null ? "The budget cannot be read" : "The specification cannot be read";
    drawBanner();
    return;
  }
  document.title = `${said.title} – hdmm studio`;
  $("title").textContent = said.title;
  const names = new Set(said.tables.map((table) => table.name));
  for (const name of wanted.keys()) if (!names.has(name)) wanted.delete(name);
  for (const table of said.tables) if (wanted.get(table.name) === table.margin) wanted.delete(table.name);
  const kept = !first && before?.privacy && step && step.value !== before.privacy.value;
  step = (kept && said.steps.find((each) => each.value === step.value)) || own();
  drawBudget();
  drawAttributes();
  drawTables();
  drawNotices();
  drawBanner();
  move();
  drawRuns();
}

const own = () => state.steps.find((each) => each.value === state.privacy.value);

function banner(text, act) {
  const place = $("banner");
  const same = place.dataset.text === (text ?? "");
  place.hidden = !text;
  if (same) return;
  place.dataset.text = text ?? "";
  place.replaceChildren(make("p", {}, text ?? ""));
  if (act) place.append(button(act.name, act.go));
}

function drawBanner() {
  if (lost) {
    banner(
      "The studio does not answer. It was ended or killed. Nothing on this page can spend anything now; start it " +
        "again with hdmm studio, and open the address that the terminal then shows.",
    );
  } else if (state?.error) {
    const mend = "\n\nCorrect the file in an editor. This page shows it as soon as it can be read.";
    const rest = state.line === null ? "" : mend;
    banner(`${state.error}${rest}`);
  } else if (late) {
    banner("The file was changed elsewhere. What you have not saved is kept on this page.", {
      name: "Load the file as it is now",
      go: () => attempt(refresh),
    });
  } else banner(null);
}

function drawNotices() {
  const { published, budget, advice } = state;
  const found = [];
  if (published.running && !running(state.release)) {
    const text = "A release into the output folder is running in another process. Wait until it is done.";
    found.push(notice(text, "calm"));
  } else if (published.kept && !running(state.release)) {
    const replace = published.report ? " It replaces the earlier publication in the folder." : "";
    const go = button("Publish it now", () => attempt(publishKept));
    found.push(notice(`A release was interrupted after it was paid for. ${published.kept}${replace}`, "", go));
  } else if (published.lost && !running(state.release)) found.push(notice(published.lost));
  if (published.blocked) found.push(notice(published.blocked));
  if (budget.refused) found.push(notice(budget.refused));
  for (const text of advice) found.push(notice(text, "calm"));
  $("notices").replaceChildren(...found);
}

function notice(text, kind = "", ...more) {
  return make("div", { class: `notice ${kind}` }, make("p", {}, text), ...more);
}

function drawBudget() {
  const slider = $("budget-slider");
  slider.max = state.steps.length - 1;
  $("budget-label").textContent = `${{ "ε": "Epsilon (ε)", "ρ": "Rho (ρ)", "μ": "Mu (μ)" }[state.privacy.symbol]} of this release`;
}

function drawAttributes() {
  const { attributes, cells } = state;
  $("attributes-lead").textContent =
    `What the data can contain, as the specification declares it: ${plural(cells, "cell", "cells")} in all.`;
  $("attribute-list").replaceChildren(
    ...attributes.map((each) => {
      const more = each.size - each.values.length;
      const values = each.ends ?? each.values.join(", ") + (more > 0 ? ` … and ${whole(more)} more` : "");
      return make(
        "li",
        {},
        make("div", { class: "heading" }, make("h3", {}, each.name), changeColumn(each.name)),
        make("p", {}, each.counted ? `${plural(each.size, "value", "values")}, ${each.kind}` : each.kind),
        make("p", { class: "values" }, values),
        each.levels.length ? make("p", {}, `Levels: ${each.levels.join(", ")}`) : null,
      );
    }),
  );
}

function changeColumn(name) {
  const there = state.declared.find((each) => each.name === name);
  return there
    ? button("Change", () => openColumn(there), { class: "plain small", "aria-label": `Change ${name}` })
    : null;
}

function drawTables() {
  const focused = document.activeElement?.id;
  const rowsAll = state.tables.reduce((sum, table) => sum + table.rows, 0);
  $("tables-lead").textContent =
    `${plural(state.tables.length, "table", "tables")} with ${plural(rowsAll, "row", "rows")}. Margins of error are at ` +
    `${number(100 * state.level)} %, before anything is spent.`;
  rows = new Map();
  $("table-list").replaceChildren(...state.tables.map(drawTable));
  if (focused && document.activeElement?.id !== focused) $(focused)?.focus();
}

function drawTable(table) {
  const facts = outlook.tables?.find((each) => each.table === table.asked);
  const row = { table, facts };
  rows.set(table.name, row);
  const size = table.count > 1 ? `${plural(table.count, "table", "tables")}, ` : "";
  const weight = table.weight === null ? [] : [`weight ${table.weight}`];
  const id = `table-${state.tables.indexOf(table)}`;
  const meta = [table.asked, `${size}${plural(table.rows, "row", "rows")}`, definition(table), ...weight];
  const sqlProperties = { tabIndex: 0, role: "group", "aria-label": `SQL of ${table.asked}` };
  const item = make(
    "li",
    { class: "table" },
    make(
      "header",
      {},
      make(
        "div",
        { class: "what" },
        make("h3", { id }, table.heading),
        make("p", { class: "meta" }, meta.join(" · ")),
      ),
      make(
        "div",
        { class: "buttons" },
        small("Edit", () => openTable(table), table, `${id}-edit`),
        small("Remove", () => openRemove(table), table, `${id}-remove`),
      ),
    ),
    table.sql === null
      ? null
      : make("details", {}, make("summary", {}, "SQL"), make("pre", sqlProperties, table.sql.trim())),
  );
  if (!facts) item.append(make("p", { class: "waiting" }, waiting()));
  else if (facts.typical !== null || facts.worst !== null) item.append(drawMargins(row));
  if (facts?.assumed && facts.worst !== null) item.append(make("p", { class: "waiting" }, ASSUMED));
  if (facts?.noise_only) item.append(make("p", { class: "waiting" }, NOISE_ONLY));
  item.append(drawAsk(row, id));
  return item;
}

function small(name, go, table, id) {
  return button(name, go, { class: "plain small", id, "aria-label": `${name} ${table.asked}` });
}

function waiting() {
  return outlook.tables
    ? "The saved plan does not measure this table. Plan again to see its margins."
    : "Margins are known once there is a plan for these tables.";
}

function definition(table) {
  const { marginals, ranges, kind, other } = table;
  if (kind === "other") return `by ${other.join(", ")}`;
  if (kind === "measures") {
    const of = ["sum", "mean", "quantiles"].filter((key) => table[key] !== null);
    const what = of.map((key) => `${key} of ${[table[key]].flat().map(naming).join(", ")}`);
    if (table.percent !== null) what.push(`percentages of the ${table.percent}`);
    const by = Array.isArray(marginals) ? ` by ${marginals.map((set) => [set].flat().join(" × ")).join("; ")}` : "";
    return `${what.join(", ")}${by}`;
  }
  if (kind === "sql") return table.columns?.length ? `SQL: ${table.columns.join(" × ")}` : "SQL";
  if (kind === "ranges") {
    const by = Array.isArray(marginals) ? marginals.flat().filter((name) => !ranges.includes(name)) : [];
    return `every range of ${ranges.join(" and ")}${by.length ? ` by ${by.join(" × ")}` : ""}`;
  }
  if (Number.isInteger(marginals)) return `by every ${marginals} attributes`;
  if (marginals.every(Number.isInteger)) return `by every ${marginals.join(", ")} attributes`;
  const named = marginals.map((set) => set.join(" × ") || "total");
  return `by ${named.slice(0, 3).join("; ")}${named.length > 3 ? "; …" : ""}`;
}

const naming = (each) => (typeof each === "string" ? each : Object.keys(each).join(", "));

function drawMargins(row) {
  const stat = (name) => {
    const value = make("strong", {});
    return [make("p", { class: "stat" }, make("span", {}, name), value), value];
  };
  const [typical, typicalValue] = stat("Typical row");
  const [worst, worstValue] = stat("Worst row");
  row.typical = typicalValue;
  row.worst = worstValue;
  row.bars = [];
  const bars = make("ul", { class: "bars" });
  const others = ["noise_on_each_count", "noise_on_every_cell", "each_table_alone"].map((key) => row.facts[key] ?? 0);
  const most = Math.max(row.facts.typical, ...others);
  for (const [name, key, kind] of [
    ["This plan", "typical", "ours"],
    ["Noise on each count", "noise_on_each_count", "counts"],
    ["Noise on every cell", "noise_on_every_cell", "cells"],
    ["Each table by itself", "each_table_alone", "counts"],
  ]) {
    const value = row.facts[key];
    const fill = make("i", {});
    const text = make("span", { class: "number" });
    if (value !== null) fill.style.width = `${(100 * value) / most}%`;
    else fill.hidden = true;
    row.bars.push([text, value]);
    const bar = make("span", { class: `bar ${kind}` }, fill);
    bars.append(make("li", {}, make("span", { class: "name" }, name), bar, text));
  }
  return make("div", { class: "margins" }, typical, worst, bars);
}

function drawAsk(row, id) {
  const { table, facts } = row;
  if (!table.exact) return make("p", { class: "waiting" }, NO_MARGIN);
  const asked = margin(table);
  const place = make("div", { class: asked === null ? "ask none" : "ask" });
  const tick = make("input", { type: "checkbox", id: `${id}-ask`, checked: asked !== null });
  tick.onchange = () => {
    want(table, tick.checked ? rounded(facts ? facts.worst * step.factor : 100) : null);
    drawTables();
    move();
  };
  place.append(make("label", { class: "choice" }, tick, " Ask for a margin"));
  if (asked === null) return place;
  const middle = table.margin ?? facts?.worst ?? asked;
  const label = `Margin of error asked for ${table.asked}`;
  const slider = make("input", { type: "range", min: -100, max: 100, step: 1, id: `${id}-slider` });
  slider.setAttribute("aria-label", label);
  const exact = make("input", { inputMode: "decimal", autocomplete: "off", id: `${id}-exact`, value: String(asked) });
  exact.setAttribute("aria-label", `${label}, exactly`);
  const at = (value) => Math.max(-100, Math.min(100, Math.round(100 * Math.log10(value / middle))));
  slider.value = at(asked);
  slider.oninput = () => {
    const back = Number(slider.value) === at(table.margin ?? -1);
    want(table, back ? table.margin : rounded(middle * 10 ** (slider.value / 100)));
    exact.value = String(margin(table));
    move();
  };
  exact.onchange = () => {
    const value = Number(exact.value.replaceAll(" ", ""));
    exact.setAttribute("aria-invalid", String(!(value > 0 && value < 1e100)));
    if (!(value > 0 && value < 1e100)) return;
    want(table, value);
    slider.value = at(value);
    move();
  };
  row.slider = slider;
  row.verdict = make("p", { class: "verdict" });
  place.append(slider, exact, row.verdict);
  return place;
}

const margin = (table) => (wanted.has(table.name) ? wanted.get(table.name) : table.margin);

function want(table, value) {
  if (value === table.margin) wanted.delete(table.name);
  else wanted.set(table.name, value);
}

function rounded(value) {
  return Number(value.toPrecision(2));
}

// What moves with the sliders: nothing here asks the server.
function move() {
  if ($("follow").checked) step = (askedMargins().length && leastFor(askedMargins())) || step;
  const { budget, privacy } = state;
  const slider = $("budget-slider");
  const at = state.steps.findIndex((each) => each.number >= step.number);
  slider.value = at < 0 ? state.steps.length - 1 : at;
  slider.setAttribute("aria-valuetext", `${step.label}, ${step.after ? `leaves ${step.after}` : "more than is left"}`);
  if (document.activeElement !== $("budget-exact")) $("budget-exact").value = step.value;
  $("budget-now").textContent = step.label;
  put("budget-delta", privacy.delta ? `δ = ${privacy.delta}, as the file says` : step.meaning);
  const [spent, asked] = document.querySelectorAll(".ledger i");
  spent.style.width = `${100 * budget.share_spent}%`;
  asked.style.width = `${100 * Math.min(step.share, 1 - budget.share_spent)}%`;
  asked.classList.toggle("over", step.after === null);
  const lines = [
    ["Cap of the ledger", budget.cap],
    ...(budget.cap_in_epsilon ? [["The cap’s ε at δ = 10⁻⁹", budget.cap_in_epsilon]] : []),
    ["Spent so far", budget.spent],
    [state.published.report ? "One more release" : "This release", step.asked],
    ["Left after it", step.after ?? "more than is left"],
  ];
  $("account").replaceChildren(...lines.map(pair));
  for (const row of rows.values()) moveTable(row);
  drawLeast();
  $("goals").hidden = !unsaved();
  $("save-goals").textContent = `Save to ${state.file.split("/").pop()}`;
  if (!unsaved()) put("goals-error", null);
  $("release-open").disabled = unsaved() || !releasable();
  drawReleaseText();
}

function moveTable({ table, facts, typical, worst, bars, slider, verdict }) {
  const asked = margin(table);
  if (facts) {
    const told = (value) => (value === null ? "–" : `± ${number(value * step.factor)}`);
    if (typical) typical.textContent = told(facts.typical);
    if (worst) worst.textContent = told(facts.worst);
    for (const [text, value] of bars ?? []) text.textContent = told(value);
  }
  if (!verdict) return;
  slider.setAttribute("aria-valuetext", `± ${number(asked)}`);
  if (!facts) {
    verdict.textContent = "";
    return;
  }
  const reached = facts.worst * step.factor <= asked;
  const least = leastFor([[facts, asked]]);
  const needs = least ? `needs ${least.label}` : "needs more than the cap of the ledger";
  verdict.className = `verdict ${reached ? "good" : "rough"}`;
  verdict.textContent = reached
    ? `✓ Reached: no row has a margin above ± ${number(asked)}.`
    : `✗ Not reached at ${step.label}: by this plan it ${needs}.`;
}

function leastFor(asked) {
  return state.steps.find((each) => asked.every(([facts, most]) => facts.worst * each.factor <= most));
}

function askedMargins() {
  const asked = [...rows.values()].filter(({ table, facts }) => facts && margin(table) !== null);
  return asked.map(({ table, facts }) => [facts, margin(table)]);
}

function drawLeast() {
  const asked = askedMargins();
  const use = $("use-least");
  use.hidden = true;
  $("follow-part").hidden = !asked.length;
  if (!asked.length) {
    const text = "Ask for margins of error, and the least budget that reaches them is shown here.";
    $("least").textContent = outlook.tables ? text : "";
    return;
  }
  const found = leastFor(asked);
  if (!found) {
    $("least").textContent =
      "No budget up to the cap reaches all margins by this plan. Ask for wider ones, or plan again.";
    return;
  }
  $("least").textContent = `By this plan, ${found.label.replaceAll(" ", "\u00a0")} is the smallest budget that meets every margin.`;
  if (found.value !== step.value) {
    use.hidden = false;
    use.textContent = `Set the budget to ${found.label}`;
    use.onclick = () => {
      step = found;
      move();
      say(`${found.label} reaches all margins.`);
    };
  }
}

function drawRuns() {
  if (state.error) return;
  const run = state.plan;
  const busy = running(run);
  $("plan-progress").hidden = !busy;
  $("plan-start").hidden = busy;
  $("plan-stop").hidden = !busy;
  $("plan-start").disabled = unsaved() || running(state.release);
  $("plan-start").className = outlook.state === "ready" ? "plain" : "primary";
  $("plan-start").textContent = outlook.state === "ready" ? "Plan again" : "Plan";
  if (busy) {
    $("plan-bar").value = Math.min(1, run.seconds / state.time_limit);
    const gain = run.gain > 1.005 ? `; margins ${number(run.gain)} times smaller than with noise on every cell` : "";
    $("plan-said").textContent = run.cancelled
      ? "Stopping…"
      : `${whole(Math.round(run.seconds))} of at most ${whole(state.time_limit)} s${gain}`;
    $("plan-text").textContent = "Looking for a strategy.";
  } else $("plan-text").textContent = planText(run);
  const releasing = running(state.release);
  if (releasing) $("release-open").disabled = true;
  drawReleaseText();
  const { published } = state;
  $("report").hidden = !published.report;
  $("report").href = published.link;
  $("rows").hidden = !published.report;
  $("rows").disabled = releasing || unsaved();
  const held = `${state.output} holds “${published.title ?? state.title}”, measured ${when(published.created)}.`;
  $("report-note").textContent = published.report ? held + rowsText() : "";
}

function rowsText() {
  const run = state.release;
  if (run?.kind !== "rows") return "";
  if (running(run)) return " Making synthetic rows from it…";
  if (run.state === "failed") return ` ${run.message}`;
  return ` ${plural(run.rows, "synthetic row", "synthetic rows")} are in ${run.folder}; about.html there says what they are good for. Nothing was spent.`;
}

function planText(run) {
  const failed = run?.state === "failed" ? `${run.message} ` : "";
  if (unsaved()) return `${failed}Save what you have changed, then plan.`;
  switch (outlook.state) {
    case "ready": {
      const stopped = run?.state === "done" && run.interrupted;
      const kept = stopped ? "The search was stopped, and the best plan so far was kept. " : "";
      const least = number(Math.ceil(1000 * (1 - (1 + outlook.gap) ** -0.5)) / 10);
      const gap = outlook.gap === null ? "" : ` No plan with this noise has margins more than ${least} % smaller.`;
      const refused = outlook.refused ? ` A release with it would be refused. ${outlook.refused}` : "";
      return `${failed}${kept}There is a plan for these tables.${gained()}${outlook.remark ? ` ${outlook.remark}` : ""}${gap}${refused}`;
    }
    case "other-goal":
      return (
        `${failed}The saved plan is for the same tables but other margins. Plan again, so that the budget goes where ` +
        "it is needed."
      );
    case "stale":
      return (
        `${failed}The tables have changed since the plan was made. Plan again` +
        (outlook.tables ? "; until then, margins are those of the old plan." : " to see margins of error.")
      );
    case "refused":
      return `${failed}${outlook.refused}`;
    default:
      return `${failed}There is no plan yet. A plan says what to measure so that margins are small.`;
  }
}

// How much smaller margins are than those of simpler mechanisms, for the table in the middle; nothing where they are not.
function gained() {
  const times = (key) => {
    const known = outlook.tables.filter((each) => each[key] !== null && each.typical > 0);
    const found = known.map((each) => each[key] / each.typical);
    return found.sort((a, b) => a - b)[Math.floor(found.length / 2)] ?? 0;
  };
  const [cells, counts] = [times("noise_on_every_cell"), times("noise_on_each_count")];
  const parts = [];
  if (cells > 1.1) parts.push(`${times2(cells)} times smaller than with noise on every cell`);
  if (counts > 1.1) parts.push(`${times2(counts)} times smaller than with noise on each count`);
  return parts.length ? ` For a typical table, margins are ${parts.join(", and ")}.` : "";
}

const times2 = (value) => value.toLocaleString("en", { maximumSignificantDigits: 2 });

function releasable() {
  const { published, budget } = state;
  const hindered = published.kept || published.running || published.blocked || budget.refused || running(state.release);
  return outlook.state === "ready" && !outlook.refused && !hindered;
}

function drawReleaseText() {
  const { budget, published } = state;
  const release = state.release?.kind === "rows" ? null : state.release;
  let text = `Spends ${budget.asked} of dataset ${state.dataset}, permanently, after a confirmation.`;
  if (running(release)) {
    text = "Debiting the ledger, counting, adding noise and writing tables…";
    if (release.kind === "resume") text = "Writing the tables and the report…";
  }
  else if (unsaved()) text = "Save what you have changed first.";
  else if (published.kept) text = "A release waits to be published; see above.";
  else if (outlook.state !== "ready") text = "Make a plan first.";
  else if (!releasable()) text = "A release would be refused at present: see the notes on this page.";
  else if (release?.state === "failed") text = `${release.message}`;
  else if (release?.state === "done") {
    text = `Published ${plural(release.tables, "table", "tables")} in ${release.folder}. ${budget.left} is left.`;
  }
  $("release-text").textContent = text;
  $("release-text").className = release?.state === "failed" && !running(release) ? "error" : "";
}

function announceRuns() {
  const { plan, release } = state;
  if (plan && !running(plan) && !running(release)) say($("plan-text").textContent);
  if (release && !running(release)) say($(release.kind === "rows" ? "report-note" : "release-text").textContent);
}

function when(timestamp) {
  const at = new Date(timestamp);
  return Number.isNaN(at.getTime()) ? "earlier" : at.toLocaleString("en-GB", { dateStyle: "long", timeStyle: "short" });
}

// --- Acting ---------------------------------------------------------------------------------------------------------

async function attempt(act, place) {
  try {
    if (place) put(place, null);
    await act();
  } catch (wrong) {
    const text = wrong instanceof Refused ? wrong.message : "The studio does not answer.";
    if (place) put(place, text);
    else banner(text);
    if (!(wrong instanceof Refused)) lost = true;
  }
}

async function saveGoals() {
  const budget = step.value === state.privacy.value ? null : step.value;
  const said = await ask("edit", { type: "goals", budget, margins: Object.fromEntries(wanted) });
  wanted.clear();
  step = null;
  await saved(said, "Saved.");
}

function undoGoals() {
  $("follow").checked = false;
  wanted.clear();
  step = own();
  drawTables();
  move();
  drawRuns();
}

async function setExact() {
  $("follow").checked = false;
  const text = $("budget-exact").value.trim();
  const known = state.steps.find((each) => each.value === text);
  step = known ?? (await ask(`step?value=${encodeURIComponent(text)}`)).step;
  move();
  drawRuns();
}

async function startPlan() {
  Object.assign(state, await ask("plan", {}));
  drawRuns();
  say("Planning.");
  $("plan-stop").focus();
}

async function makeRows() {
  Object.assign(state, await ask("rows", {}));
  drawRuns();
}

async function publishKept() {
  Object.assign(state, await ask("resume", { replace: state.published.report }));
  drawNotices();
  drawRuns();
}

// --- The dialog of a table ------------------------------------------------------------------------------------------

function openTable(table) {
  editing = table?.name ?? null;
  $("table-heading").textContent = table ? `Edit ${table.name}` : "Add a table";
  $("table-name").value = table?.name ?? "";
  $("table-title").value = table?.title ?? "";
  $("table-weight").value = table?.weight ?? "";
  $("table-expected").value = table?.expected ?? "";
  $("table-sql").value = table?.sql?.trim() ?? "";
  const { marginals = null, ranges = null } = table ?? {};
  const listed = Array.isArray(marginals) && marginals.every(Array.isArray);
  const single = ranges === null || marginals === null || (listed && marginals.length === 1);
  const plain = !table || (table.kind !== "other" && single);
  const measure = measureOf(table);
  const formed = table?.kind !== "measures" || measure !== null;
  const counted = plain && formed && (marginals === null || listed || [1, 2, 3].includes(marginals));
  const kind = !counted ? "other" : (table?.kind ?? "marginals");
  $("kinds").hidden = !counted;
  $("other-keys").textContent =
    "What this table counts is written in the file in a way that this form does not know. It stays as it is.";
  for (const radio of document.querySelectorAll("[name=kind]")) radio.checked = radio.value === kind;
  $("marginals-how").value = Number.isInteger(marginals) && counted ? String(marginals) : "set";
  const one = listed && marginals.length === 1 ? marginals[0] : [];
  sets = kind === "marginals" && listed && marginals.length > 1 ? marginals.map((set) => [...set]) : [];
  const { attributes } = state;
  const names = attributes.filter((each) => each.counted).flatMap((each) => [each.name, ...each.levels]);
  ticks("marginals-attributes", names, one);
  ticks("ranges-attributes", attributes.filter((each) => each.ordered).map((each) => each.name), ranges ?? []);
  const numbers = attributes.filter((each) => each.number).map((each) => each.name);
  $("measure-how").value = measure?.how ?? "mean";
  ticks("measure-of", numbers, measure?.of ?? []);
  ticks("measure-by", names, measure ? one : []);
  ticks("ranges-by", names, one.filter((name) => !ranges?.includes(name)));
  drawSets();
  drawKind(kind);
  $("table-reload").hidden = true;
  tell("");
  $("table-dialog").showModal();
  $("table-name").focus();
  mark(null);
  if (table) tryTable();
}

// What a table of measures publishes, if this form can say it: one measure, in groups of one set of attributes.
function measureOf(table) {
  if (table?.kind !== "measures") return null;
  const { sum, mean, quantiles, percent, marginals } = table;
  const found = [["sum", sum], ["mean", mean], ["quantiles", quantiles]].filter(([, of]) => of !== null);
  if (found.length + (percent !== null) !== 1 || (Array.isArray(marginals) && marginals.length > 1)) return null;
  if (percent !== null) return { how: percent, of: [] };
  const [[how, of]] = found;
  if (typeof of === "string") return { how, of: [of] };
  return Array.isArray(of) ? { how, of } : null;
}

function ticks(id, names, chosen) {
  $(id).replaceChildren(
    ...names.map((name) => {
      const box = make("input", { type: "checkbox", value: name, checked: chosen.includes(name) });
      return make("label", { class: "choice" }, box, ` ${name}`);
    }),
  );
  if (!names.length) $(id).append(make("span", { class: "hint" }, "No attribute has an order."));
}

const ticked = (id) => [...$(id).querySelectorAll(":checked")].map((box) => box.value);
const chosenKind = () => ($("kinds").hidden ? "other" : document.querySelector("[name=kind]:checked").value);

function drawKind(kind) {
  for (const part of document.querySelectorAll("[data-kind]")) part.hidden = part.dataset.kind !== kind;
  $("sets-part").hidden = $("marginals-how").value !== "set";
  $("measure-of-part").hidden = PERCENT.includes($("measure-how").value);
}

function drawSets() {
  $("sets").replaceChildren(
    ...sets.map((set, i) =>
      make(
        "li",
        {},
        set.join(" × ") || "total",
        button("✕", () => dropSet(i), { class: "", "aria-label": `Remove the combination ${set.join(", ")}` }),
      ),
    ),
  );
  $("sets").hidden = !sets.length;
}

function dropSet(i) {
  sets.splice(i, 1);
  drawSets();
  soon();
  $("another-set").focus();
}

function tableForm() {
  const weight = $("table-weight").value.trim();
  const there = state.tables.find((table) => table.name === editing);
  const form = { name: $("table-name").value.trim(), title: $("table-title").value.trim() || null };
  form.weight = weight === "" ? null : Number(weight);
  const expected = $("table-expected").value.trim();
  if (expected) form.expected = Number.isNaN(Number(expected)) ? expected : Number(expected);
  if (there?.margin_text != null) form.margin = there.margin_text;
  switch (chosenKind()) {
    case "marginals": {
      const how = $("marginals-how").value;
      const set = ticked("marginals-attributes");
      form.marginals = how === "set" ? [...sets, ...(set.length || !sets.length ? [set] : [])] : Number(how);
      break;
    }
    case "ranges": {
      form.ranges = ticked("ranges-attributes");
      const by = ticked("ranges-by").filter((name) => !form.ranges.includes(name));
      if (by.length) form.marginals = [[...form.ranges, ...by]];
      break;
    }
    case "measures": {
      const how = $("measure-how").value;
      const by = ticked("measure-by");
      if (by.length) form.marginals = [by];
      if (PERCENT.includes(how)) form.percent = how;
      else form[how] = ticked("measure-of");
      break;
    }
    case "sql":
      form.sql = $("table-sql").value;
      if (there?.kind === "sql") form.percent = there.percent;
      break;
    default:
      for (const key of COUNTED) form[key] = there[key];
  }
  return form;
}

function tableEdit() {
  const table = tableForm();
  return editing === null ? { type: "add", table } : { type: "change", name: editing, table };
}

// What is wrong with a form before the server need be asked; nothing if it can be.
function missing(table) {
  if (table.weight !== null && !(table.weight > 0 && Number.isFinite(table.weight))) {
    return "The weight is a number above 0. Write it with a point, such as 0.5.";
  }
  if (table.sql !== undefined && table.sql !== null && !table.sql.trim()) return "Write a SELECT.";
  const [first, ...others] = Array.isArray(table.marginals) ? table.marginals : [null];
  if (first?.length === 0 && !others.length) return "Tick at least one attribute.";
  if (table.percent && !table.sql && !table.marginals) return "Tick the attributes that percentages are by.";
  if ([table.sum, table.mean, table.quantiles].some((of) => of?.length === 0)) return "Tick what is added up.";
  if (table.ranges?.length === 0) return "Tick at least one attribute whose ranges are counted.";
  return null;
}

let timer = 0;
let asked = 0;

function soon() {
  clearTimeout(timer);
  mark(null);
  timer = setTimeout(() => attempt(tryTable, "table-said"), 350);
}

async function tryTable() {
  const mine = ++asked;
  const edit = tableEdit();
  const lacking = missing(edit.table);
  if (lacking) {
    tell(lacking);
    return false;
  }
  const unnamed = !edit.table.name;
  if (unnamed) edit.table.name = `unnamed-${Date.now()}`; // so that the rest can be tried already
  const said = await ask("try", edit);
  if (mine !== asked) return false;
  mark(said.ok || said.line === undefined ? null : said);
  if (said.ok) {
    const size = said.count > 1 ? `${plural(said.count, "table", "tables")} with ` : "";
    const by = said.columns.length ? ` by ${said.columns.join(" × ")}` : "";
    const found = `${size}${plural(said.rows, "row", "rows")}${by}.`;
    tell(unnamed ? `${found} Give the table a name to save it.` : found, unnamed ? "" : "fine");
  } else if (said.line === undefined) tell(said.error, "bad");
  else tell(`Line ${said.line}, column ${said.column}: ${said.error}`, "bad", said);
  return said.ok && !unnamed;
}

function tell(text, kind = "", where = null) {
  const place = $("table-said");
  place.hidden = false;
  place.className = `said ${kind}`;
  place.replaceChildren(text);
  if (where?.line !== undefined) place.append(pointer(where));
}

// The line of the SQL that is wrong, with carets under the place.
function pointer({ line, column, length }) {
  const text = $("table-sql").value.split("\n")[line - 1] ?? "";
  const from = Math.max(0, column - 31);
  const shown = text.slice(from, from + 60).replace(/\s/g, " ");
  const carets = "^".repeat(Math.min(length, 61 - (column - from)));
  return make("code", {}, `${shown}\n${" ".repeat(column - 1 - from)}${carets}`);
}

function mark(where) {
  const area = $("table-sql");
  const marks = $("sql-marks");
  area.setAttribute("aria-invalid", String(where !== null));
  if (!where) {
    marks.replaceChildren();
    return;
  }
  const lines = area.value.split("\n");
  const start = lines.slice(0, where.line - 1).reduce((sum, each) => sum + each.length + 1, 0) + where.column - 1;
  const stop = Math.min(start + where.length, area.value.length);
  const wrong = area.value.slice(start, stop) || " ";
  marks.replaceChildren(area.value.slice(0, start), make("mark", {}, wrong), `${area.value.slice(stop)}\n`);
  marks.scrollTop = area.scrollTop;
}

async function saveTable() {
  clearTimeout(timer);
  $("table-save").disabled = true;
  try {
    if (!(await tryTable())) {
      const wrong = chosenKind() === "sql" && $("table-sql").getAttribute("aria-invalid") === "true";
      $(wrong ? "table-sql" : "table-name").focus();
      return;
    }
    const said = await ask("edit", tableEdit());
    if (editing !== null) wanted.delete(editing);
    $("table-dialog").close();
    await saved(said, "Saved.");
  } catch (wrong) {
    if (!(wrong instanceof Refused)) throw wrong;
    tell(wrong.message, "bad");
    $("table-reload").hidden = !wrong.changed;
  } finally {
    $("table-save").disabled = false;
  }
}

async function reloadUnderTable() {
  await refresh();
  if (editing !== null && !state.tables.some((table) => table.name === editing)) {
    editing = null;
    $("table-heading").textContent = "Add a table";
  }
  $("table-reload").hidden = true;
  await tryTable();
}

// --- The dialog of an attribute or amount ---------------------------------------------------------------------------

let column = null; // the one that is changed; null to add one

function openColumn(there) {
  column = there;
  $("column-heading").textContent = there ? `Change ${there.name}` : "Add an attribute or amount";
  $("column-name").value = there?.name ?? "";
  $("column-declaration").value = there?.declaration ?? "";
  for (const radio of document.querySelectorAll("[name=part]")) radio.checked = radio.value === (there?.part ?? "domain");
  $("parts").hidden = there !== null;
  $("column-remove").hidden = there === null;
  const keys = declared(there);
  $("column-kind").value = columnKind(there, keys);
  for (const key of ["first", "last", "step", "low", "high"]) $(`column-${key}`).value = keys[key] ?? "";
  $("column-amount-step").value = keys.step ?? "";
  $("column-labels").value = (keys.labels ?? []).map((label) => written(label)).join("\n");
  $("column-bins").value = listed(keys.bins);
  $("column-values").value = listed(keys.values);
  $("column-groups").value = named(keys.groups);
  $("column-levels").value = typeof keys.levels === "string" ? "" : named(keys.levels);
  $("column-file").value = typeof keys.levels === "string" ? keys.levels : "";
  $("column-outside").value = keys.outside ?? "drop";
  drawColumn();
  faults({});
  put("column-said", null);
  $("column-dialog").showModal();
  $("column-name").focus();
}

// The keys of a declaration, in whichever of the short ways it is written.
function declared(there) {
  const keys = there?.keys ?? {};
  if (Array.isArray(keys)) return { labels: keys };
  return Number.isInteger(keys) ? { first: 0, last: keys - 1 } : keys;
}

// The form for a declaration: by the key that says what the values are, or as text if no form has all of it.
function columnKind(there, keys) {
  if (!there || there.part === "amounts") return "labels";
  const kind = ["labels", "first", "bins", "levels"].find((key) => key in keys);
  const file = typeof keys.levels === "string";
  return kind && file === (kind === "levels") ? kind : "toml";
}

const chosenPart = () => document.querySelector("[name=part]:checked").value;
const columnForm = () => (chosenPart() === "amounts" ? "amounts" : $("column-kind").value);

function drawColumn() {
  for (const part of document.querySelectorAll("[data-column]")) {
    part.hidden = !part.dataset.column.split(" ").includes(columnForm());
  }
}

// A label as the form shows it: in quotes if it would be read as something else without them.
function written(label, among = "") {
  const plain = typeof label !== "string" || (read(label) === label && label === label.trim() && !/["\n]/.test(label));
  return plain && !(among && String(label).includes(among)) ? String(label) : JSON.stringify(label);
}

// What a text in the form stands for: a number, true or false, or itself; in quotes, the text in them.
function read(text) {
  const plain = text.trim();
  if (/^[+-]?\d[\d_]*(\.\d+)?([eE][+-]?\d+)?$/.test(plain)) return Number(plain.replaceAll("_", ""));
  if (plain === "true" || plain === "false") return plain === "true";
  try {
    return plain.startsWith('"') ? JSON.parse(plain) : plain;
  } catch {
    return plain;
  }
}

const listed = (values) => (values ?? []).map((each) => written(each, ",")).join(", ");
const named = (lists) => Object.entries(lists ?? {}).map(([name, of]) => `${name} = ${listed([of].flat())}`).join("\n");
const lines = (id) => $(id).value.split("\n").filter((line) => line.trim());
const items = (text) => (text.match(/\s*"(?:[^"\\]|\\.)*"\s*(?=,|$)|[^,]+/g) ?? []).filter((each) => each.trim()).map(read);

// The declaration that the form states, and what is wrong in which of its fields before the server need be asked.
function stated() {
  const wrong = {};
  const keys = {};
  const number = (key, id = `column-${key}`, needed = true) => {
    const text = $(id).value.trim();
    const value = read(text);
    if (text && typeof value === "number") keys[key] = value;
    else if (text || needed) wrong[key] = "Write a number, such as 0, 0.5 or 10_000.";
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) wrong[key] = "Write a number of at most 2**53 in size.";
  };
  const numbers = (key, needed) => {
    const values = items($(`column-${key}`).value);
    if (values.length) keys[key] = values;
    if (values.some((each) => typeof each !== "number") || (needed && !values.length)) {
      wrong[key] = "Write numbers with commas between them, such as 0, 10_000, 50_000.";
    }
  };
  const lists = (key, single) => {
    const found = {};
    for (const line of lines(`column-${key}`)) {
      const [name, of] = [line.slice(0, line.indexOf("=")).trim(), items(line.slice(line.indexOf("=") + 1))];
      if (!name || !line.includes("=") || !of.length) wrong[key] = "Write a name, =, and what follows, on each line.";
      else if (name in found) wrong[key] = `${name} is there twice. Give each level a name of its own.`;
      found[name] = single && of.length === 1 ? of[0] : of;
    }
    if (Object.keys(found).length) keys[key] = found;
  };
  switch (columnForm()) {
    case "amounts":
      number("low");
      number("high");
      number("step", "column-amount-step", false);
      return { keys, wrong };
    case "toml":
      return { keys: $("column-declaration").value, wrong };
    case "labels":
      keys.labels = lines("column-labels").map(read);
      if (!keys.labels.length) wrong.labels = "Write at least one value.";
      break;
    case "first":
      number("first");
      number("last");
      number("step", "column-step", false);
      lists("groups", true);
      break;
    case "bins":
      numbers("bins", true);
      numbers("values", false);
      break;
    default:
      keys.levels = $("column-file").value.trim();
      if (!keys.levels) wrong.levels = "Write the path of a CSV file.";
  }
  if (columnForm() !== "levels") lists("levels", false);
  if ($("column-outside").value !== "drop") keys.outside = $("column-outside").value;
  return { keys: Object.keys(keys).join() === "labels" ? keys.labels : keys, wrong };
}

// Say beside each field what is wrong with it, and take away what was said before.
function faults(wrong) {
  for (const place of document.querySelectorAll("[data-field]")) {
    const text = place.closest("[hidden]") ? undefined : wrong[place.dataset.field];
    place.querySelector(".error")?.remove();
    place.querySelector("input, textarea, select").setAttribute("aria-invalid", String(Boolean(text)));
    if (text) place.append(make("span", { class: "error", role: "alert" }, text));
  }
}

const shownField = (key) => [...document.querySelectorAll(`[data-field="${key}"]`)].some((at) => !at.closest("[hidden]"));

function columnEdit(remove) {
  const name = column?.name ?? null;
  const called = remove ? name : $("column-name").value.trim();
  return { type: "column", part: chosenPart(), name, called, declaration: remove ? null : stated().keys };
}

function soonColumn() {
  clearTimeout(timer);
  faults({});
  put("column-said", null);
  timer = setTimeout(() => attempt(() => tryColumn(false), "column-said"), 500);
}

// Whether the form can be saved. While it is being filled in, only what the server says of a whole one is shown.
async function tryColumn(saving) {
  const mine = ++asked;
  const { wrong } = stated();
  if (saving) faults(wrong);
  if (Object.keys(wrong).length) return false;
  const edit = columnEdit(false);
  if (!edit.called) {
    if (saving) faults({ called: "Give it a name: that of the column in the data." });
    return false;
  }
  const said = await ask("try", edit);
  if (mine !== asked) return false;
  $("column-said").className = `said ${said.ok ? "fine" : "bad"}`;
  const beside = !said.ok && shownField(said.field);
  faults(beside ? { [said.field]: said.error } : {});
  put("column-said", said.ok ? columnText(said.column) : beside ? null : said.error);
  return said.ok;
}

function columnText({ counted, kind, ends, size, values, levels }) {
  if (!counted) return `${ends}.`;
  const first = values.slice(0, 6).join(", ") + (size > 6 ? ", …" : "");
  const groups = levels.length ? `; levels: ${levels.join(", ")}` : "";
  return `${plural(size, "value", "values")}, ${kind}: ${ends ?? first}${groups}.`;
}

async function saveColumn(remove) {
  clearTimeout(timer);
  if (!remove && !(await tryColumn(true))) {
    document.querySelector('#column-form [aria-invalid="true"]')?.focus();
    return;
  }
  const said = await ask("edit", columnEdit(remove));
  $("column-dialog").close();
  await saved(said, remove ? "Removed." : "Saved.");
}

// --- Removing and releasing -----------------------------------------------------------------------------------------

function openRemove(table) {
  editing = table.name;
  put("remove-error", null);
  $("remove-text").textContent =
    `${table.heading} (${table.asked}) is taken out of ${state.file.split("/").pop()}. What was released stays.`;
  $("remove-dialog").showModal();
}

async function remove() {
  const said = await ask("edit", { type: "remove", name: editing });
  wanted.delete(editing);
  $("remove-dialog").close();
  await saved(said, "Removed.");
  $("tables").focus();
}

async function openRelease() {
  offered = { ...(await ask("offer", {})), key: crypto.randomUUID() };
  const o = offered;
  const tooWide = [...rows.values()]
    .filter(({ table, facts }) => facts && table.margin !== null && facts.worst > table.margin)
    .map(({ table, facts }) => `${table.name} ± ${number(facts.worst)} instead of ± ${number(table.margin)}`);
  $("offer-heading").textContent = `Release “${state.title}”`;
  $("offer-lead").textContent =
    `This spends ${o.asked} of the budget of dataset ${o.dataset}, from the ledger ${o.ledger}. It is permanent and ` +
    "cannot be undone.";
  const lines = [
    ["Guarantee", o.meaning],
    ["It hides", o.unit],
    ["Left now", o.left],
    ["Left after it", o.after],
    ["Reads", o.source],
    ["Publishes", `${o.tables.join(", ")} into ${o.output}`],
  ];
  if (tooWide.length) {
    lines.push(["Too wide", `${tooWide.join("; ")}. These margins are wider than you have asked for.`]);
  }
  $("offer-facts").replaceChildren(...lines.map(pair));
  $("offer-replace-part").hidden = !o.replaces;
  $("offer-replace").checked = false;
  $("offer-near-part").hidden = !o.near;
  $("offer-near").textContent = o.near ? `${o.near} It is about other people.` : "";
  $("offer-new").checked = false;
  $("offer-amount").value = "";
  $("offer-hint").textContent = `Type ${o.type} to spend ${o.short}.`;
  $("offer-yes").textContent = `Spend ${o.asked} and release`;
  put("offer-error", null);
  agree();
  $("release-dialog").showModal();
  $("offer-amount").focus();
}

function agree() {
  const typed = $("offer-amount").value.trim() === offered.type;
  const ticks = (!offered.replaces || $("offer-replace").checked) && (!offered.near || $("offer-new").checked);
  $("offer-yes").disabled = !(typed && ticks);
}

async function release() {
  $("offer-yes").disabled = true;
  try {
    const { key, digest, record } = offered;
    const said = await ask("release", {
      key,
      digest,
      record,
      amount: $("offer-amount").value.trim(),
      replace: $("offer-replace").checked,
      new_dataset: $("offer-new").checked,
    });
    Object.assign(state, said);
    $("release-dialog").close();
    drawRuns();
    drawNotices();
    say("Releasing.");
  } finally {
    agree();
  }
}

// --- Wiring ---------------------------------------------------------------------------------------------------------

function wire() {
  // On a phone, the slider stays in sight while the tables are scrolled.
  const wide = matchMedia("(min-width: 62.01rem)");
  const fold = () => { $("budget-more").open = wide.matches; };
  wide.onchange = fold;
  fold();
  $("follow").onchange = () => {
    move();
    drawRuns();
  };
  $("budget-slider").oninput = () => {
    $("follow").checked = false;
    step = state.steps[Number($("budget-slider").value)];
    put("budget-error", null);
    move();
    drawRuns();
  };
  $("budget-slider").onchange = () => {
    say(`${step.label}. ${step.after ? `${step.after} would be left.` : "That is more than is left."}`);
  };
  $("budget-exact").onchange = () => attempt(setExact, "budget-error");
  $("save-goals").onclick = () => attempt(saveGoals, "goals-error");
  $("undo-goals").onclick = undoGoals;
  $("plan-start").onclick = () => attempt(startPlan);
  $("plan-stop").onclick = () => attempt(async () => Object.assign(state, await ask("cancel", {})));
  $("add").onclick = () => openTable(null);
  $("add-column").onclick = () => openColumn(null);
  $("column-remove").onclick = () => attempt(() => saveColumn(true), "column-said");
  $("column-form").oninput = () => {
    drawColumn();
    soonColumn();
  };
  $("column-form").onsubmit = (event) => {
    event.preventDefault();
    attempt(() => saveColumn(false), "column-said");
  };
  $("remove-yes").onclick = () => attempt(remove, "remove-error");
  $("release-open").onclick = () => attempt(openRelease);
  $("rows").onclick = () => attempt(makeRows);
  $("table-reload").onclick = () => attempt(reloadUnderTable, "table-said");
  $("another-set").onclick = () => {
    const set = ticked("marginals-attributes");
    if (!set.length) return;
    sets.push(set);
    for (const box of $("marginals-attributes").querySelectorAll(":checked")) box.checked = false;
    drawSets();
    soon();
  };
  for (const each of document.querySelectorAll("[data-close]")) each.onclick = () => each.closest("dialog").close();
  $("table-form").oninput = (event) => {
    if (event.target.name === "kind" || ["marginals-how", "measure-how"].includes(event.target.id)) drawKind(chosenKind());
    soon();
  };
  $("table-form").onsubmit = (event) => {
    event.preventDefault();
    attempt(saveTable, "table-said");
  };
  $("table-sql").onscroll = () => { $("sql-marks").scrollTop = $("table-sql").scrollTop; };
  $("release-form").oninput = agree;
  $("release-form").onsubmit = (event) => {
    event.preventDefault();
    if (!$("offer-yes").disabled) attempt(release, "offer-error");
  };
  addEventListener("beforeunload", (event) => { if (state && !state.error && unsaved()) event.preventDefault(); });
}

wire();
attempt(async () => {
  await refresh();
  beat();
}).then(() => { if (!state) $("title").textContent = "This page cannot be shown"; });

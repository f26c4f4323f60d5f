/*
 * Asks the master every 2 s; after a failure less often, up to every 30 s; not
 * while the page is hidden. What the pool says is set as text only, and its
 * figures are held to their ranges: a node may lie about them.
 */
"use strict";

const POLL_MS = 2000, SECOND_MS = 500, /* rates take two samples */
	POLL_MAX_MS = 30000, TIMEOUT_MS = 10000;
const RATE_MS = 10000; // rates are of this long
const OBJECTS_PER_PAGE = 50, OBJECTS_MAX = 5000;
const NAMED = 3; // how many nodes the first line names
const FULL = 0.05, EXPIRES_SOON_DAYS = 14; // as in kvpool status
const TAIL = 12; // characters of a long name's end that are always seen
const NAME_MAX = 64; // of a name in a sentence: as long as those of nodes may be
const CLOCKS_S = 60; // by which clocks may differ
const DIRECTORIES = 20, EVENTS = 15; // rows
const DIRECTORIES_MS = 10000; // nodes report their look-ups no more often

const by_id = (id) => document.getElementById(id);

// ---- text ----

/* Control characters, and those that are invisible or turn the text around. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

function visible(text) {
	return String(text).replace(UNSEEN, (c) => {
		const n = c.codePointAt(0);
		return n < 256 ? "\\x" + n.toString(16).padStart(2, "0") :
				 "\\u{" + n.toString(16) + "}";
	});
}

function count(n) {
	return Number.isFinite(n) && n > 0 ? n : 0;
}

function plural(n, one, many) {
	return count(n).toLocaleString("en") + " " + (n === 1 ? one : many);
}

function bytes(n) {
	const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
	let i = 0;
	for (n = count(n); n >= 1024 && i < units.length - 1; i++)
		n /= 1024;
	return (i === 0 ? n : n.toFixed(1)) + " " + units[i];
}

function seconds(s) {
	s = count(s);
	if (s < 120)
		return Math.round(s) + " s";
	if (s < 7200)
		return Math.round(s / 60) + " min";
	return s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d";
}

function when(time) {
	const at = new Date(time);
	return Number.isNaN(at.getTime()) ? "unknown" : at.toLocaleString("sv-SE");
}

/* Of a file; its time is what a user or another clock has set. */
function age(ms) {
	const passed = (Date.now() - ms) / 1000;
	return ms >= 0 && passed > -CLOCKS_S ? seconds(passed) : "unknown";
}

// ---- elements ----

function element(tag, text, name) {
	const e = document.createElement(tag);
	if (text !== undefined)
		e.textContent = text;
	if (name)
		e.className = name;
	return e;
}

/* In a sentence: a name that is too long loses its middle. */
function short(name) {
	const shown = Array.from(visible(name));
	return shown.length <= NAME_MAX ? shown.join("") :
		shown.slice(0, NAME_MAX - TAIL - 1).join("") + "…" +
			shown.slice(-TAIL).join("");
}

/* Only what has changed is touched, so a selection or the focus stays. */
function set(e, text) {
	if (e.textContent !== text)
		e.textContent = text;
}

/* A name: copied whole and as it is, whatever is seen of it. */
function set_name(e, text) {
	const shown = visible(text), last = Array.from(shown).slice(-TAIL).join("");
	if (e.raw === text)
		return;
	e.raw = text;
	e.className = "name";
	e.title = shown;
	e.replaceChildren(
		element("span", shown.slice(0, shown.length - last.length), "head"),
		element("span", last, "tail"));
}

/* The same for text with names in it, which is wrapped. */
function set_text(e, text) {
	e.raw = text;
	e.className = "name text";
	set(e, visible(text));
}

document.addEventListener("copy", (event) => {
	const at = document.getSelection().anchorNode;
	const to = document.getSelection().focusNode;
	const of = (n) => (n instanceof Element ? n : n && n.parentElement)?.closest(".name");
	const name = of(at) || at?.childNodes?.[document.getSelection().anchorOffset];
	if (name?.raw === undefined || !(name === of(to) || name.parentNode === to))
		return;
	event.clipboardData.setData("text/plain", name.raw);
	event.preventDefault();
});

function set_bar(e, used, evictable, capacity) {
	const all = count(capacity), u = Math.min(count(used), all);
	const ev = Math.min(count(evictable), u);
	const part = (n) => (all ? (100 * n) / all : 0).toFixed(1) + "%";
	if (!e.firstChild)
		e.append(element("i", "", "kept"), element("i", "", "evictable"));
	e.children[0].style.width = part(u - ev);
	e.children[1].style.width = part(ev);
	e.setAttribute("aria-label", `${bytes(u)} of ${bytes(all)} used, ` +
		`${bytes(ev)} of it evictable`);
}

/* columns: [[label, class, fill(cell, row)]...]; rows are kept by key. */
/* columns: [label, class, function that fills a cell, or also what it means]. */
function table(id, columns) {
	const e = by_id(id), body = e.querySelector("tbody"), shown = new Map();
	for (const [label, kind, , meaning] of columns) {
		const th = element("th", label, kind);
		if (meaning)
			th.title = meaning;
		th.setAttribute("role", "columnheader");
		th.scope = "col";
		e.querySelector("thead tr").append(th);
	}
	function row_of(key) {
		const tr = element("tr");
		tr.setAttribute("role", "row");
		for (const [label, kind, , meaning] of columns) {
			const td = element("td", "", kind);
			if (meaning)
				td.title = meaning;
			td.setAttribute("role", "cell");
			td.dataset.label = label;
			tr.append(td);
		}
		shown.set(key, tr);
		return tr;
	}
	return (rows) => { // [[key, row]...]
		const keys = new Set(rows.map(([key]) => key));
		for (const [key, tr] of shown)
			if (!keys.has(key)) {
				tr.remove();
				shown.delete(key);
			}
		rows.forEach(([key, row], at) => {
			const tr = shown.get(key) || row_of(key);
			columns.forEach(([, , fill], i) => fill(tr.children[i], row));
			if (body.children[at] !== tr)
				body.insertBefore(tr, body.children[at] || null);
		});
	};
}

function inner(cell, tag) {
	if (!cell.firstChild)
		cell.append(element(tag));
	return cell.firstChild;
}

// ---- what is wrong, and what to do ----

function names_of(nodes) {
	const names = nodes.map((node) => short(node.name));
	return names.slice(0, NAMED).join(", ") +
		(names.length > NAMED ? ` and ${names.length - NAMED} more` : "");
}

/* [[class, text]...], the worst first. */
function problems(status, nodes) {
	const repair = status.repair, links = status.links, found = [];
	const away = nodes.filter((node) => !node.alive);
	const liars = nodes.filter((node) => node.impossible_figures === true);
	const no_room = count(repair.no_room_keys);
	const room = count(status.capacity) - count(status.used) + count(status.evictable);
	const full = count(status.capacity) && room < FULL * status.capacity;
	const pinned = count(status.soft_pinned) + count(status.hard_pinned);
	const mend = no_room ? "add a store, or lower user.kvpool.replicas." :
		full ? "make room: then copies are made." : "await the repair.";
	const start = away.length ? `Start ${names_of(away)}, or ${mend}` :
				    mend[0].toUpperCase() + mend.slice(1);

	if (!status.ready)
		found.push(["warn", "The master waits for nodes that were in the pool before " +
			"its start. Start " + (names_of(away) || "them") + ", or wait."]);
	if (count(repair.left_0))
		found.push(["bad", `Short of copies: ${plural(repair.left_0, "object has",
			"objects have")} no copy on a store. ${start}`]);
	else if (count(repair.endangered))
		found.push(["warn", `Short of copies: ${plural(repair.endangered, "object",
			"objects")}${no_room ? ", which no other store can take" : ""}. ${start}`]);
	else if (no_room) // of nodes that are being drained
		found.push(["bad", `Copies of ${plural(no_room, "object have", "objects have")} ` +
			`no room (${bytes(repair.no_room_bytes)}). Add a store.`]);
	if (full)
		found.push(["bad", "Full: less than 5 % of the stores is free or evictable. " +
			"Give a store more memory (--store-size), add a store, or " +
			`${pinned ? "unpin or " : ""}delete objects.`]);
	if (away.length && status.ready && !count(repair.endangered))
		found.push(["warn", `${plural(away.length, "node is", "nodes are")} away: ` +
			`${names_of(away)}. Start ${away.length === 1 ? "it" : "them"}` +
			(full ? "." : ", or await the repair.")]);
	if (!nodes.length)
		found.push(["warn", "The pool has no nodes. Start kvpoold --master with " +
			"this master's address."]);
	else if (!count(status.capacity))
		found.push(["warn", "The pool has no store. Start a node with --store-size."]);
	if (liars.length)
		found.push(["warn", `${names_of(liars)} ${liars.length === 1 ? "reports" : "report"} ` +
			"figures that cannot be: they are bounded here. Is its program " +
			"damaged, or not KVPool? Look at it, and restart it."]);
	if (links.protected === "tls" && links.expires_days <= EXPIRES_SOON_DAYS)
		found.push(["warn", `The master's certificate expires in ${plural(
			links.expires_days, "day", "days")}. Renew it: kvpool certs renew.`]);
	return found.sort((a, b) => (b[0] === "bad") - (a[0] === "bad"));
}

function say(list) {
	const [[kind, text], ...others] = list;
	by_id("verdict").className = kind;
	set(by_id("first"), text);
	if (by_id("others").textContent !== others.map((o) => o[1]).join(""))
		by_id("others").replaceChildren(...others.map((o) => element("li", o[1])));
	document.title = (kind === "ok" ? "" : "! ") + "KVPool: " + text.split(/[:.]/)[0];
}

function healthy(status, nodes) {
	const drained = nodes.filter((node) => node.draining);
	return ["ok", `Healthy: ${plural(nodes.length, "node", "nodes")}, every object has its ` +
		"copies. Nothing to do." +
		(drained.length ? ` Being drained: ${names_of(drained)}.` : "")];
}

// ---- rates ----

const samples = []; // of the last RATE_MS

/* Per second, or null: how fast figure(sample) grows. A counter that starts
 * again adds nothing. */
function take_sample(status, nodes) {
	const now = performance.now();
	samples.push({ now, seq: count(status.feed_seq),
		       sent: new Map(nodes.map((node) => [node.id, count(node.sent_bytes)])) });
	while (samples.length > 2 && samples[0].now < now - RATE_MS)
		samples.shift();
}

function rate(grown) {
	const first = samples[0], last = samples[samples.length - 1];
	return samples.length < 2 ? null :
		Math.max(0, grown(first, last)) / ((last.now - first.now) / 1000);
}

function sent_by(id) {
	return (a, b) => (a.sent.has(id) ? Math.max(0, b.sent.get(id) - a.sent.get(id)) : 0);
}

function sent_by_all(a, b) {
	let sum = 0;
	for (const id of b.sent.keys())
		sum += sent_by(id)(a, b);
	return sum;
}

function speed(r) {
	return r === null ? "…" : bytes(r) + "/s";
}

// ---- the pool ----

function percent(part, all) {
	all = count(all);
	return all ? Math.round((100 * Math.min(count(part), all)) / all) + " %" : "–";
}

const WINDOWS = [["15m", "15 min"], ["1h", "1 h"], ["24h", "24 h"]];

/* What was hit beside what any capacity could have: far apart, memory helps. */
function hit_ratios(status) {
	return WINDOWS.map(([window, label]) => {
		const seen = status.asked[window], all = count(seen.lookups);
		return ["Hit ratio, " + label, all ?
			`${percent(seen.hits, all)} of ${plural(all, "look-up", "look-ups")}, ` +
			`at best ${percent(seen.best_hits, all)}` : "no look-ups"];
	});
}

function figures(status) {
	const repair = status.repair;
	const changes = rate((a, b) => b.seq - a.seq);
	const left = count(repair.bytes_left);
	let repaired = "every object has its copies";

	if (count(repair.endangered) || left)
		repaired = `${plural(repair.endangered, "object lacks", "objects lack")} copies` +
			(count(repair.no_room_keys) ?
				`, no other store has room for ${count(repair.no_room_keys)}; ` : "; ") +
			`${plural(repair.copies_under_way, "copy", "copies")} in flight, ` +
			`${bytes(left)} left, ${bytes(repair.bytes_per_second)}/s` +
			(repair.seconds_left > 0 ? `, about ${seconds(repair.seconds_left)}` : "");
	return [
		["Objects", `${plural(status.keys, "object", "objects")}, ${bytes(status.bytes)}`],
		["Directories", count(status.directories).toLocaleString("en")],
		["Nodes", `${count(status.nodes_alive)} of ${count(status.nodes)} alive`],
		...hit_ratios(status),
		["Sent between nodes", speed(rate(sent_by_all))],
		["Changes", changes === null ? "…" : changes.toFixed(1) + "/s"],
		["Repair", repaired],
		["Pinned", plural(count(status.soft_pinned) + count(status.hard_pinned),
			"object", "objects")],
		["Master", `up ${seconds(status.uptime_ms / 1000)}, epoch ${count(status.epoch)}`],
	];
}

function show_pool(status) {
	const all = count(status.capacity), used = Math.min(count(status.used), all);
	const evictable = Math.min(count(status.evictable), used), dl = by_id("figures");

	set_bar(by_id("bar"), used, evictable, all);
	set(by_id("kept"), `${bytes(used - evictable)} kept`);
	set(by_id("evictable"), `${bytes(evictable)} evictable`);
	set(by_id("free"), `${bytes(all - used)} free of ${bytes(all)}`);
	figures(status).forEach(([label, text], i) => {
		if (!dl.children[i]) {
			dl.append(element("div"));
			dl.children[i].append(element("dt", label), element("dd"));
		}
		set(dl.children[i].lastChild, text);
	});
	set(by_id("footer"), `Master of version ${visible(status.version)} at ${location.host}, ` +
		`asked at ${new Date().toLocaleTimeString("en-GB")}`);
}

const show_nodes = table("nodes", [
	["Node", "wide", (cell, node) => set_name(inner(cell, "span"), node.name)],
	["State", "state", (cell, node) => {
		const s = inner(cell, "span");
		set(s, visible(node.state));
		s.className = node.alive ? (node.draining ? "warn-text" : "") : "bad-text";
	}],
	["Used", "", (cell, node) => {
		if (node.is_store) {
			const bar = inner(cell, "div");
			bar.className = "bar";
			bar.setAttribute("role", "img");
			set_bar(bar, node.used, node.evictable, node.capacity);
		}
	}],
	["Bytes", "number", (cell, node) => set(cell, node.is_store ?
		`${bytes(node.used)} of ${bytes(node.capacity)}` : "no store")],
	["Objects", "number", (cell, node) => set(cell, count(node.objects).toLocaleString("en"))],
	["Coming", "number", (cell, node) => set(cell, String(count(node.copies_coming)))],
	["Leaving", "number", (cell, node) => set(cell, String(count(node.copies_leaving)))],
	["Sends", "number", (cell, node) => set(cell, speed(rate(sent_by(node.id))))],
	["Mount", "", (cell, node) => set(cell, node.is_mount ? visible(node.data_mode) : "none")],
]);

// ---- directories and events ----

const show_directories = table("directories", [
	["Directory", "wide", (cell, directory) => {
		const e = inner(cell, "span");
		if (directory.name)
			set_name(e, directory.name);
		else
			set(e, directory.name === "" ? "files in the root" : "all other directories");
	}],
	["Size", "number", (cell, directory) => set(cell, bytes(directory.bytes))],
	["Objects", "number", (cell, directory) =>
		set(cell, count(directory.objects).toLocaleString("en"))],
	["Hit ratio, 1 h", "number", (cell, directory) =>
		set(cell, percent(directory.hits, directory.lookups)),
	"Look-ups of files by mounts in the last hour: how many found one."],
	["Best possible, 1 h", "number", (cell, directory) =>
		set(cell, directory.best_hits === null ? "–" :
			percent(directory.best_hits, directory.lookups)),
	"How many of these look-ups could have found a file, had nothing been evicted: those of " +
	"names that were asked for before (an estimate). Well above the hit ratio: more memory helps."],
	["Loaded, 1 h", "number", (cell, directory) =>
		set(cell, directory.loaded_bytes === null ? "–" : bytes(directory.loaded_bytes)),
	"Bytes of the files that mounts opened to read in the last hour."],
	["Evicted", "number", (cell, directory) => set(cell, directory.evicted ?
		`${count(directory.evicted).toLocaleString("en")} (${bytes(
			directory.evicted_bytes)})` : "0")],
	["Mean age", "number", (cell, directory) =>
		set(cell, count(directory.objects) ? seconds(directory.age_seconds) : "–")],
]);

/* The largest; what the others have is added to those that the master adds up. */
function largest(directories) {
	const named = directories.filter((directory) => directory.name !== null)
		.sort((a, b) => count(b.bytes) - count(a.bytes));
	const rest = directories.filter((directory) => directory.name === null)
		.concat(named.slice(DIRECTORIES));
	const sum = (of) => rest.reduce((s, directory) => s + count(of(directory)), 0);
	const sum_known = (of) => rest.some((directory) => of(directory) === null) ? null : sum(of);
	const objects = sum((directory) => directory.objects);

	return named.slice(0, DIRECTORIES).concat(rest.length ? [{
		name: null, objects, bytes: sum((directory) => directory.bytes),
		lookups: sum((directory) => directory.lookups),
		hits: sum((directory) => directory.hits),
		best_hits: sum_known((directory) => directory.best_hits),
		loaded_bytes: sum_known((directory) => directory.loaded_bytes),
		evicted: sum((directory) => directory.evicted),
		evicted_bytes: sum((directory) => directory.evicted_bytes),
		age_seconds: sum((directory) => count(directory.age_seconds) *
			count(directory.objects)) / objects,
	}] : []);
}

const show_events = table("events", [
	["Time", "state", (cell, entry) =>
		set(cell, when(entry.time))],
	["Event", "state", (cell, entry) => set(cell, visible(entry.kind))],
	["What", "wide", (cell, entry) => set_text(inner(cell, "span"), entry.text)],
]);

let directories_at = -Infinity, events_upto = null;

/* These need not be there for the rest of the page: a user who may not see names
 * sees a message. */
async function show_more(status) {
	const now = performance.now(), total = count(status.events);
	try {
		if (total !== events_upto) {
			const since = Math.max(0, total - EVENTS);
			const list = (await ask("api/events?since=" + since)).events;
			show_events(list.slice(-EVENTS).reverse()
				.map((entry) => [entry.number, entry]));
			events_upto = total;
		}
		set(by_id("events-note"), (total > EVENTS ?
			`The last ${EVENTS} of ${total.toLocaleString("en")}. ` +
			`More: kvpool events --admin ${location.host}. ` : "") +
			"What happened before this master led is in the log of the one before.");
	} catch (error) {
		set(by_id("events-note"), "No events: " + error.message);
	}
	if (now - directories_at < DIRECTORIES_MS)
		return;
	try {
		const list = largest((await ask("api/directories")).directories);
		show_directories(list.map((directory) =>
			[directory.name === null ? null : "/" + directory.name, directory]));
		directories_at = now;
		set(by_id("directories-note"), list.length ? "" : "There are none.");
	} catch (error) {
		set(by_id("directories-note"), "No directories: " + error.message);
	}
}

// ---- objects ----

const show_objects = table("objects", [
	["Path", "wide", (cell, object) => set_name(inner(cell, "span"), object.path)],
	["Size", "number", (cell, object) => set(cell, bytes(object.size))],
	["Copies", "number", (cell, object) => {
		const s = inner(cell, "span"), short = object.replicas < object.replicas_wanted;
		set(s, `${object.replicas} of ${object.replicas_wanted}` +
			(object.extra_copies ? ` + ${object.extra_copies}` : ""));
		s.className = short ? "bad-text" : "";
	}],
	["On", "", (cell, object) =>
		set_text(inner(cell, "span"), object.nodes.join(", ") || "no store")],
	["Class", "", (cell, object) => set(cell, visible(object.class) +
		(object.pin === "none" ? "" : `, ${visible(object.pin)} pin`))],
	["Age", "number", (cell, object) =>
		set(cell, age(object.mtime_ns / 1e6))],
]);

let found = [], next = null, searches = 0;

async function search(more) {
	const path = by_id("path").value.replace(/^\/+/, ""), mine = ++searches;

	set(by_id("found"), "Looking …");
	try {
		const page = await ask("api/objects?limit=" + OBJECTS_PER_PAGE + "&prefix=" +
			encodeURIComponent(path) +
			(more && next ? "&token=" + encodeURIComponent(next) : ""));
		if (mine !== searches)
			return;
		found = (more ? found : []).concat(page.objects);
		next = found.length < OBJECTS_MAX ? page.next : null;
		show_objects(found.map((object, i) => [i, object]));
		by_id("objects").hidden = !found.length;
		by_id("more").hidden = !next;
		set(by_id("found"), found.length || next ?
			plural(found.length, "object", "objects") + (next ? ", and more" : "") :
			"There is nothing of this path: " + (visible(path) || "/"));
	} catch (error) {
		if (mine === searches)
			set(by_id("found"), "No list of objects: " + error.message);
	}
}

by_id("find").addEventListener("submit", (event) => {
	event.preventDefault();
	history.replaceState(null, "", "#" + encodeURIComponent(by_id("path").value));
	search(false);
});
by_id("more").addEventListener("click", () => search(true));

/* #PATH: a search that was bookmarked. */
function from_hash() {
	try {
		by_id("path").value = decodeURIComponent(location.hash.slice(1));
	} catch {
		return;
	}
	if (location.hash)
		search(false);
}
window.addEventListener("hashchange", from_hash);

// ---- asking ----

/* The JSON of a page; throws with a message for people. */
async function ask(url) {
	let answer, text, json = null;
	try {
		answer = await fetch(url, { cache: "no-store", credentials: "same-origin",
					    redirect: "error",
					    signal: AbortSignal.timeout(TIMEOUT_MS) });
		text = await answer.text();
	} catch {
		throw new Error("no answer");
	}
	try {
		json = JSON.parse(text);
	} catch {
		// as text, below
	}
	if (answer.ok && json)
		return json;
	throw new Error(visible(json?.error || text.trim().slice(0, 300) ||
		"status " + answer.status));
}

/* The page of a node with an embedded master (daemon/web.h). */
const embedded = location.pathname !== "/";
let wait_ms = POLL_MS, timer = 0, asking = false, answered_at = null;

function standby(election) {
	const leader = visible(election.leader || "");
	return ["warn", "This master is a standby. " + (leader ?
		`Open the page of the one that leads: nodes reach it at ${leader}.` :
		"No master leads now: wait, or start another.")];
}

function show(status, nodes) {
	const list = problems(status, nodes);

	take_sample(status, nodes);
	say(list.length ? list : [healthy(status, nodes)]);
	show_pool(status);
	show_nodes(nodes.map((node) => [node.id, node]));
}

async function poll() {
	clearTimeout(timer);
	if (asking || document.hidden)
		return;
	asking = true;
	try {
		const status = await ask("api/status");
		if (status.repair) {
			show(status, (await ask("api/nodes")).nodes);
			await show_more(status);
		} else
			say([standby(status.election)]);
		answered_at = new Date();
		wait_ms = POLL_MS;
		document.body.classList.remove("stale");
	} catch (error) {
		wait_ms = Math.min(2 * wait_ms, POLL_MAX_MS);
		document.body.classList.add("stale");
		samples.length = 0;
		say([["bad", `No master at ${location.host}: ${error.message}. ` +
			(embedded ? "Start the pool there again (kvpool up)." :
				"Start kvpool-master there, or open another master's page.") +
			(answered_at ? ` The figures are those of ${answered_at.toLocaleTimeString("en-GB")}.` :
				 "")]]);
	}
	asking = false;
	timer = setTimeout(poll, samples.length === 1 ? SECOND_MS : wait_ms);
}

document.addEventListener("visibilitychange", () => {
	wait_ms = POLL_MS;
	samples.length = 0;
	poll();
});
from_hash();
poll();

#!/bin/bash
# The web page of the master's admin address: its headers, what it loads and asks, and,
# in a browser, what it says of a pool that is healthy, short of copies, full, and
# without its master. PAGE_SHOTS=DIR keeps the pictures.
# modes: passthrough
# limit: 300
. "$(dirname "$0")/../lib/lib.sh"
need_fuse
need curl jq setfattr

top=$(realpath "$(dirname "$0")/../..")
web=$top/daemon/web
MIB=1048576

start_master --heartbeat 500ms
for n in a b c; do
	start_node $n --store-size 64M --no-fd-passing --hot-gets 0
done
A=${mount[a]}
page=${admin[master]}
mkdir "$A/three" "$A/kept" "$A/odd"
setfattr -n user.kvpool.replicas -v 3 "$A/three"
setfattr -n user.kvpool.class -v noevict "$A/kept"
long=$(printf 'begin%0243dthe-end' 0)
odd=$'\x01\n\x1b[31m\u202e<img src=x onerror=alert(1)>&amp;'
for name in one two three; do echo $name >"$A/three/$name"; done
echo long >"$A/odd/$long"
echo odd >"$A/odd/$odd"
printf bytes >"$A/odd/"$'\xff\xfe'
sync "$A/odd"
three() { # COUNT: have all of three/ so many copies?
	http "$page/api/objects?prefix=three/&limit=10" |
		jq -e --argjson n "$1" '[.objects[].replicas] | length == 3 and all(. == $n)'
}
wait_until 20 three 3 >/dev/null

echo "== the files, and their headers"
get() { curl -sS --noproxy '*' --max-time 5 "$@"; }
for file in index.html app.css app.js; do
	path=${file#index.html}
	get -D "$tmp/headers" -o "$tmp/$file" "http://$page/$path"
	cmp "$tmp/$file" "$web/$file" || fail "/$path is not $file"
	tr -d '\r' <"$tmp/headers" >"$tmp/headers.$file"
	for header in 'X-Content-Type-Options: nosniff' 'Cache-Control: no-store' \
		'Referrer-Policy: no-referrer'; do
		grep -qix "$header" "$tmp/headers.$file" || fail "/$path has no $header"
	done
	! grep -qi '^Set-Cookie' "$tmp/headers.$file" || fail "/$path sets a cookie"
	policy=$(sed -n 's/^Content-Security-Policy: //p' "$tmp/headers.$file")
	for part in "default-src 'none'" "script-src 'self'" "base-uri 'none'" \
		"form-action 'none'" "frame-ancestors 'none'" \
		"require-trusted-types-for 'script'" "trusted-types 'none'"; do
		[[ "; $policy;" == *"; $part;"* ]] || fail "/$path has the policy: $policy"
	done
	[[ $policy != *unsafe* && $policy != *http* && $policy != *\** ]] ||
		fail "/$path has the policy: $policy"
	[ "$(get -o /dev/null -w '%{http_code}' -X POST "http://$page/$path")" = 405 ] ||
		fail "POST of /$path"
	[ "$(get -o /dev/null -w '%{http_code}' -H 'Host: evil.example' \
		"http://$page/$path")" = 403 ] || fail "/$path for another Host"
done
grep -qx 'Content-Type: text/html; charset=utf-8' "$tmp/headers.index.html" || fail "type of /"
grep -qx 'Content-Type: text/css; charset=utf-8' "$tmp/headers.app.css" || fail "type of css"
grep -qx 'Content-Type: text/javascript; charset=utf-8' "$tmp/headers.app.js" || fail "type of js"
for at in "$page/api" "${admin[a]}/" "${admin[a]}/api"; do
	get "http://$at" >"$tmp/pages"
	grep -qx /api/nodes "$tmp/pages" || fail "$at does not list the pages"
done

echo "== it loads nothing from elsewhere, and has no code or style within HTML"
! grep -nE '(https?:)?//[a-z]' "$web"/index.html "$web"/app.css || fail "an address"
! grep -nE 'https?:|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|import\(' \
	"$web/app.js" || fail "what it may not use"
! grep -nEi '<style|style=| on[a-z]+=|<script>' "$web/index.html" || fail "inline"
loads() { grep -oE "(src|href)=\"[^\"]*\"" "$web/index.html" | cut -d'"' -f2 | sort | xargs; }
[ "$(loads)" = 'app.css app.js' ] || fail "it loads $(loads)"

echo "== each page that it asks exists, and has the fields that it reads"
asked=$(grep -oE 'ask\("[^"?]+' "$web/app.js" | cut -d'"' -f2 | sort -u | xargs)
[ "$asked" = 'api/directories api/events api/nodes api/objects api/status' ] || fail "it asks $asked"
http "$page/api/status" >"$tmp/status.json"
http "$page/api/nodes" >"$tmp/nodes.json"
http "$page/api/objects?limit=1" >"$tmp/objects.json"
http "$page/api/directories" >"$tmp/directories.json"
http "$page/api/events" >"$tmp/events.json"
has() { # VARIABLE FILE JQ-FILTER ABSENT-FIELD...
	local fields field n=0 var=$1 file=$2 filter=$3
	shift 3
	fields=$(grep -oE "\b$var\.[a-z_0-9]+" "$web/app.js" | cut -d. -f2 | sort -u)
	for field in $fields; do
		[[ " $* " == *" $field "* ]] && continue
		jq -e "$filter | has(\"$field\")" "$tmp/$file" >/dev/null ||
			fail "the page reads $var.$field, which $file does not have"
		n=$((n + 1))
	done
	[ $n -gt 0 ] || fail "it reads no field of $var"
}
has status status.json . election # with --etcd
has repair status.json .repair
has links status.json .links expires_days # with TLS
has node nodes.json '.nodes[0]'
has object objects.json '.objects[0]'
has page objects.json .
has seen status.json '.asked["24h"]'
has directory directories.json '.directories[0]'
has entry events.json '.events[0]'

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome ||
	command -v chromium-headless-shell || :)
[ -n "$chromium" ] || skip "what the page shows is not tested: no chromium on this machine"

browse() { python3 "$top/tests/it/browser.py" "$chromium" "$@"; }
shots=${PAGE_SHOTS:-$tmp}
FIRST='document.getElementById("first").textContent'
says() { # TEXT: a condition for the browser
	echo "until=$FIRST.includes($(jq -n --arg t "$1" '$t'))"
}
fits='document.documentElement.scrollWidth <= document.documentElement.clientWidth'
pictures() { # NAME: steps that take them
	echo "until=!document.getElementById('pool-title').parentElement.innerText.includes('…')" \
		"size=1280x900" "shot=$shots/$1.png" "media=dark" "shot=$shots/$1-dark.png" \
		"size=380x800" "until=${fits// /}" "shot=$shots/$1-phone.png" \
		"media=light" "size=3840x2160" "until=${fits// /}" "shot=$shots/$1-4k.png" "size=1280x900"
}
# The least contrast of text with what is behind it.
cat >"$tmp/contrast.js" <<'JS'
(() => {
	const rgb = (c) => c.match(/[\d.]+/g).map(Number);
	const light = (c) => rgb(c).slice(0, 3).map((v) => v / 255)
		.map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
		.reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = getComputedStyle(e).backgroundColor;
			if (rgb(c)[3] !== 0)
				return c;
		}
		return "rgb(255, 255, 255)";
	};
	let least = 99;
	for (const e of document.querySelectorAll("body *")) {
		if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()))
			continue;
		const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
		least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
	}
	return least >= 4.5 && least < 99;
})()
JS
contrast="until=$(cat "$tmp/contrast.js")"
# What a screen reader, a keyboard or a finger needs: a list of what is missing.
cat >"$tmp/audit.js" <<'JS'
(() => {
	const wrong = [], all = [...document.querySelectorAll("body *")];
	const text = (e) => (e?.textContent || "").trim();
	const shown = (e) => e.getClientRects().length > 0;
	const need = (ok, what, e) => ok || wrong.push(`${what}: ${e.outerHTML.slice(0, 80)}`);
	const named = (e) => e.getAttribute("aria-label")?.trim() || text(e) ||
		text(document.getElementById(e.getAttribute("aria-labelledby"))) ||
		[...(e.labels || [])].some(text);
	need(document.documentElement.lang, "no language", document.documentElement);
	need(document.title.trim(), "no title", document.head);
	need(document.querySelectorAll("h1").length === 1, "not one h1", document.body);
	need(document.querySelectorAll("main").length === 1, "not one main", document.body);
	let level = 1;
	for (const h of document.querySelectorAll("h1, h2, h3, h4")) {
		need(+h.tagName[1] <= level + 1, "a level is left out", h);
		level = +h.tagName[1];
	}
	for (const e of document.querySelectorAll("input, button, section, [role=img]"))
		need(!shown(e) || named(e), "no name", e);
	for (const e of document.querySelectorAll("th"))
		need(text(e) && e.scope === "col", "a column without a name", e);
	for (const t of document.querySelectorAll("table"))
		for (const [which, role] of [["", "table"], ["thead, tbody", "rowgroup"], ["tr", "row"],
					     ["th", "columnheader"], ["td", "cell"]])
			for (const e of which ? t.querySelectorAll(which) : [t])
				need(e.getAttribute("role") === role, "no role", e); // they are blocks on a phone
	for (const e of document.querySelectorAll("td"))
		need(!shown(e) || text(e) === "" || e.dataset.label, "a cell without a label", e);
	const ids = all.map((e) => e.id).filter(Boolean);
	need(new Set(ids).size === ids.length, "an id twice", document.body);
	for (const e of all) {
		const style = getComputedStyle(e);
		need(e.tabIndex <= 0, "out of the order of tabs", e);
		need(style.animationName === "none" && style.transitionDuration === "0s", "it moves", e);
		if (e.matches("a, button, input") && shown(e)) {
			const box = e.getBoundingClientRect();
			need(box.width >= 24 && box.height >= 24, "too small to hit", e);
		}
	}
	need(document.querySelector("[role=status] h1"), "the first line is not announced", document.body);
	need(!/user-scalable|maximum-scale/.test(document.querySelector("meta[name=viewport]").content),
	     "no zoom", document.head);
	return wrong;
})()
JS
audit="print=$(cat "$tmp/audit.js")"

echo "== what no node of ours says: figures that are lies, names that are HTML, other states"
cat >"$tmp/made_up.py" <<'PY'
"""A master whose answers are the files of a directory; counts what it is asked."""
import http.server
import os
import sys

web, answers, port_file = sys.argv[1:]
asked = {"status": 0}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = self.path.partition("?")[0]
        name, status = path.rpartition("/")[2], 200
        if path.startswith("/api/"):
            asked[name] = asked.get(name, 0) + 1
            kind, file = "application/json", os.path.join(answers, name)
        else:
            kind = {"": "text/html", "app.css": "text/css"}.get(name, "text/javascript")
            file = os.path.join(web, name or "index.html")
        if name == "asked":
            body = str(asked["status"]).encode()
        elif os.path.exists(file):
            body = open(file, "rb").read()
        else:
            status, body = 503, b'{"error": "not \\u001b[31m now"}'
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
open(port_file, "w").write(str(server.server_port))
server.serve_forever()
PY
mkdir "$tmp/answers"
python3 "$tmp/made_up.py" "$web" "$tmp/answers" "$tmp/made_up.port" &
made_up=$!
also_kill+=("$made_up")
wait_until 10 test -s "$tmp/made_up.port"
answer() { # PAGE JQ-FILTER: of the real master, changed
	jq "$2" "$tmp/$1.json" >"$tmp/answers/.$1"
	mv "$tmp/answers/.$1" "$tmp/answers/$1"
}
html='<img src=x onerror=alert(1)>'
answer status '.asked["1h"] = { lookups: 1000, hits: 614, best_hits: 800, names: 200 } |
	.asked["15m"] = { lookups: 10, hits: 1e300, best_hits: -1, names: "x" } | .used = -1 | .evictable = 1e300 | .keys = "many" | .uptime_ms = null |
	.repair.seconds_left = -7 | .version = "<b>1</b>"'
jq --arg html "$html" --arg long "$(printf '%0255d' 0)" '.nodes[0] += { name: $html, used: 9e18,
	evictable: -3, capacity: 1, objects: -1, sent_bytes: "x", data_mode: $html,
	state: "draining \u0007 %", draining: true } | .nodes[1].name = $long' \
	"$tmp/nodes.json" >"$tmp/answers/nodes"
answer directories '.directories[0].bytes = -1 | .directories[0].lookups = "x" |
	.directories[0].age_seconds = -1e300 | .directories[1].hits = 1e300 |
	.directories[1].objects = null | .directories[0].best_hits = -1 |
	.directories[1].best_hits = "x" | .directories[0].loaded_bytes = 1e300 |
	.directories[1].loaded_bytes = {} | .directories[0].evicted = "x" | .directories[1].evicted = -1'
answer events '.events[0] += { time: "never", kind: "<b>\u0007" }'
browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/" size=380x800 open \
	"$(says "Healthy: 3 nodes, every object has its copies. Nothing to do. Being drained: $html.")" \
	"until=${fits// /}" 'print=document.querySelectorAll("img").length' \
	'until=document.querySelectorAll("#directories tr").length > 3' \
	'until=document.querySelector("#events tbody tr:last-child").innerText.includes("<b>\\x07")' \
	'until=document.getElementById("figures").textContent.includes(
		"Hit ratio, 1 h61 % of 1,000 look-ups, at best 80 %")' \
	'until=document.getElementById("figures").textContent.includes("100 % of 10 look-ups, at best 0 %")' \
	'print=/NaN|undefined|null|Infinity|Invalid/.test(document.body.innerText)' \
	'print=[...document.querySelectorAll("#nodes .name")].map((e) => e.textContent.length).join()' \
	'print=document.querySelector("#nodes tbody tr").innerText.includes("draining \\x07 %")' \
	"shot=$shots/lies-phone.png" size=1280x900 "shot=$shots/lies.png" \
	"do=document.getElementById('find').requestSubmit()" \
	'until=document.getElementById("found").textContent === "No list of objects: not \\x1b[31m now"' \
	"run=jq '[\"x\", 1e300, -1e300, (now + 1e6) * 1e9, (now - 100) * 1e9] as \$t |
		.objects = [range(5) as \$i | .objects[0] + {path: \"\(\$i)\", mtime_ns: \$t[\$i]}]' \
		$tmp/objects.json >$tmp/answers/objects" "do=document.getElementById('find').requestSubmit()" \
	'until=document.querySelectorAll("#objects tbody tr").length === 5' \
	'print=[...document.querySelectorAll("#objects tbody td:last-child")].map((e) =>
		/^10[0-9] s$/.test(e.textContent) ? "right" : e.textContent).join()' \
	"run=echo '{}' >$tmp/answers/objects" "do=document.getElementById('find').requestSubmit()" \
	'until=document.getElementById("found").textContent.startsWith("No list of objects: ")' \
	quiet >"$tmp/output"
[ "$(xargs <"$tmp/output")" = "0 false ${#html},255,$(jq -r '.nodes[2].name | length' \
	"$tmp/nodes.json") true unknown,unknown,unknown,unknown,right" ] || fail "lies: $(cat "$tmp/output")"

echo "== the largest 20 directories, and the sum of the others"
jq '.directories = [range(25) | { name: "d\(.)", objects: 2, bytes: (1024 * .), age_seconds: 60,
	lookups: 10, hits: 5, best_hits: (if . == 6 then null else 8 end), loaded_bytes: (1048576 * .),
	evicted: ., evicted_bytes: (2048 * .) }] + [{ name: null, objects: 10, bytes: 6144, age_seconds: 7260,
	lookups: 50, hits: 50, best_hits: 50, loaded_bytes: null, evicted: 3, evicted_bytes: 1024 }]' "$tmp/directories.json" >"$tmp/answers/directories"
rows='[...document.querySelectorAll("#directories tbody tr")].map((tr) =>
	[...tr.children].map((td) => td.textContent).join(" "))'
best='[...document.querySelectorAll("#directories th, #directories tbody tr:first-child td")]
	.filter((e) => e.title.startsWith("How many of these look-ups could have found a file"))
	.map((e) => e.textContent)'
browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/" open "until=$rows.length > 4" "print=$rows" \
	"print=$best" quiet >"$tmp/output"
jq -es '.[0] | length == 21 and .[0] == "d24 24.0 KiB 2 50 % 80 % 24.0 MiB 24 (48.0 KiB) 60 s" and
	.[18] == "d6 6.0 KiB 2 50 % – 6.0 MiB 6 (12.0 KiB) 60 s" and
	.[20] == "all other directories 16.0 KiB 20 75 % 90 % – 13 (21.0 KiB) 61 min"' "$tmp/output" >/dev/null ||
	fail "directories: $(cat "$tmp/output")"
jq -es '.[1] == ["Best possible, 1 h", "80 %"]' "$tmp/output" >/dev/null ||
	fail "what the column says: $(tail -n1 "$tmp/output")"

echo "== control characters, HTML and 255 bytes as names: escaped, cut in the middle, copied whole"
long255=$(printf 'begin%0243dthe-end' 0)
jq -n --arg odd "$odd" --arg long "$long255" '[$odd, $long]' >"$tmp/names.json"
named() { # PAGE LIST FIELD: the first of the list have these names
	jq --slurpfile names "$tmp/names.json" \
		".$2[0].$3 = \$names[0][0] | .$2[1].$3 = \$names[0][1]" "$tmp/$1.json" >"$tmp/answers/$1"
}
http "$page/api/objects?limit=2" >"$tmp/objects.json"
named nodes nodes name
named directories directories name
named events events text
named objects objects path
# A string that matches nothing if a character of it is not to be seen.
cat >"$tmp/shown.js" <<'JS'
[...document.querySelectorAll("VIEW .name")].every((e) => !/[\x00-\x1f\u202e]/.test(e.textContent) &&
	e.getBoundingClientRect().right <= e.closest("td").getBoundingClientRect().right + 1)
JS
cat >"$tmp/copied.js" <<'JS'
JSON.stringify([...document.querySelectorAll("VIEW .name")].map((e) => {
	const data = new DataTransfer();
	getSelection().selectAllChildren(e);
	e.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true,
						     cancelable: true }));
	return data.getData("text/plain"); }))
JS
steps=()
for view in nodes directories objects events; do
	steps+=("until=document.querySelectorAll('#$view .name').length >= 2"
		"until=$(sed "s/VIEW/#$view/" "$tmp/shown.js")" "print=$(sed "s/VIEW/#$view/" "$tmp/copied.js")")
done
cut_in_the_middle='[...document.querySelectorAll("#nodes .name, #directories .name, #objects .wide .name")]
	.filter((e) => e.lastChild.textContent.startsWith("0") && e.firstChild.scrollWidth >
		e.firstChild.clientWidth && e.lastChild.textContent.endsWith("the-end")).length === 3'
for size in 380x800 1280x900; do
	browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/#x" size=$size open "$(says Healthy)" \
		"${steps[@]}" "until=$cut_in_the_middle" "until=${fits// /}" \
		'until=!document.querySelector("img, b, main script")' \
		"shot=$shots/names-$size.png" quiet >"$tmp/output"
	[ "$(jq -s --slurpfile names "$tmp/names.json" \
		'map(select(($names[0] - .) == [])) | length' "$tmp/output")" = 4 ] ||
		fail "copied: $(cut -c 1-400 "$tmp/output")"
done

echo "== each problem has its line"
state() { # LINE STATUS-FILTER NODES-FILTER: a step each
	answer status "$2"
	answer nodes "$3"
	browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/" open \
		"$(says "$1" | sed 's/"first"/"verdict"/')" quiet
}
state 'The master waits for nodes' '.ready = false' '.nodes[1].alive = false'
state '1 node is away: ' . '.nodes[1].alive = false'
state "Start begin$(printf '%046d' 0)…00000the-end, or wait." '.ready = false' \
	".nodes[1] += { alive: false, name: \"$long255\" }"
state '2 objects have no copy on a store. Await the repair.' \
	'.repair += { endangered: 3, left_0: 2 }' .
state 'Copies of 4 objects have no room (1.0 KiB). Add a store.' \
	'.repair += { no_room_keys: 4, no_room_bytes: 1024 }' '.nodes[0].draining = true'
state 'Full: less than 5 % of the stores is free or evictable. Give a store more memory' \
	'.capacity = 1000 | .used = 990 | .evictable = 0' .
state 'add a store, or delete objects.' '.capacity = 1000 | .used = 990 | .evictable = 0' .
state 'add a store, or unpin or delete objects.' \
	'.capacity = 1000 | .used = 990 | .evictable = 0 | .soft_pinned = 1' .
state 'Make room: then copies are made.' \
	'.capacity = 1000 | .used = 990 | .evictable = 0 | .repair.endangered = 3' .
state "away: $(jq -r '.nodes[1].name' "$tmp/nodes.json"). Start it." \
	'.capacity = 1000 | .used = 990 | .evictable = 0' '.nodes[1].alive = false'
state 'The pool has no nodes. Start kvpoold --master' . '.nodes = []'
state 'The pool has no store.' '.capacity = 0' .
state 'figures that cannot be: they are bounded here.' . \
	'.nodes[1].impossible_figures = true'
state "certificate expires in 1 day." '.links = { protected: "tls", expires_days: 1 }' .
state 'This master is a standby. Open the page of the one that leads: nodes reach it at m2:7070.' \
	'del(.repair) | .election = { leader: "m2:7070" }' .
state 'No master leads now' 'del(.repair) | .election = { leader: "" }' .

echo "== it asks less often without an answer, and not while it is hidden"
answer status .
answer nodes .
browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/" open "$(says Healthy)" \
	"run=rm $tmp/answers/status" "$(says 'No master at 127.0.0.1:')" \
	"$(says ': not \x1b[31m now. Start kvpool-master')" 'until=wait_ms === 8000' \
	"run=cp $tmp/status.json $tmp/answers/status" "$(says Healthy)" 'until=wait_ms === 2000' \
	'do=Object.defineProperty(document, "hidden", { value: true, configurable: true })' \
	'do=document.dispatchEvent(new Event("visibilitychange"))' 'run=sleep 0.5' \
	'print=fetch("api/asked").then((a) => a.text())' 'run=sleep 5' \
	'print=fetch("api/asked").then((a) => a.text())' \
	'do=delete document.hidden; document.dispatchEvent(new Event("visibilitychange"))' \
	'until=samples.length >= 3' quiet >"$tmp/output"
[ "$(sort -u "$tmp/output" | wc -l)" = 1 ] || fail "asked while hidden: $(xargs <"$tmp/output")"
echo "== open for a day: neither elements nor memory nor requests in flight grow"
# The page's own functions, with a clock, timers and answers of ours: nodes and
# directories come and go, events go on, the master fails now and then.
cat >"$tmp/day.js" <<'JS'
(() => {
	const answers = {}, timers = new Map();
	let clock = performance.now(), ids = 0, turn = 0, flying = 0;
	window.day = { most_flying: 0, asked: 0, timers };
	performance.now = () => clock;
	AbortSignal.timeout = () => undefined;
	window.setTimeout = (fn) => (timers.set(++ids, fn), ids);
	window.clearTimeout = (id) => timers.delete(id);
	const real = window.fetch;
	const page = (url) => url.split("?")[0].split("/").pop();
	const copy = (name) => structuredClone(answers[name]);
	const made = {
		status: () => Object.assign(copy("status"), {
			events: 20 + turn, feed_seq: 10 * turn, keys: turn % 7 }),
		nodes: () => {
			const a = copy("nodes"), from = turn % 100;
			for (let i = 0; i < 10; i++)
				a.nodes.push({ ...a.nodes[0], id: "id" + (from + i), name: "n" + (from + i),
					       sent_bytes: 1000 * turn, alive: i !== 0 });
			return a;
		},
		directories: () => {
			const a = copy("directories"), from = turn % 100;
			for (let i = 0; i < 30; i++)
				a.directories.push({ ...a.directories[0], name: "d" + (from + i),
						     bytes: from + i });
			return a;
		},
		events: () => ({ events: Array.from({ length: 15 }, (_, i) => ({
			number: turn + i, time: "2026-01-01T00:00:00Z", kind: "joined",
			text: "node " + (turn + i) })) }),
		objects: () => copy("objects"),
	};
	window.fetch = async (url) => {
		day.asked++;
		day.most_flying = Math.max(day.most_flying, ++flying);
		await null; // one at least is in flight
		flying--;
		if (turn % 1000 === 7)
			throw new TypeError("no master");
		return new Response(JSON.stringify(made[page(url)]()));
	};
	day.begin = async () => {
		for (const name of Object.keys(made))
			answers[name] = await (await real("api/" + name)).json();
	};
	day.polls = async (n) => {
		for (let i = 0; i < n; i++, turn++) {
			clock += wait_ms;
			const one = poll();
			if (turn % 1000 === 3) // back from another tab, while it asks
				document.dispatchEvent(new Event("visibilitychange"));
			if (turn % 100 === 5)
				await search(false);
			await one;
			if (turn % 500 === 0)
				await new Promise((go) => requestAnimationFrame(go));
		}
	};
})()
JS
for name in nodes directories objects events; do answer $name .; done
browse "http://127.0.0.1:$(cat "$tmp/made_up.port")/" open "$(says Healthy)" \
	"do=$(cat "$tmp/day.js")" 'do=day.begin()' 'do=day.polls(1000)' heap \
	'do=day.polls(10000)' heap 'print=day.most_flying' 'print=day.timers.size' \
	'print=day.asked > 20000 && samples.length <= 7' quiet >"$tmp/output"
cat "$tmp/output"
[ "$(sed -n 3,5p "$tmp/output" | xargs)" = "2 1 true" ] ||
	fail "requests in flight, timers, asked: $(sed -n 3,5p "$tmp/output" | xargs)"
# 10,000 times a number would be 80 kB; the rest is the compiler's.
jq -se '.[0] as $before | .[1] | .nodes <= $before.nodes + 10 and
	.listeners <= $before.listeners and .bytes < $before.bytes + 300000' \
	<(sed -n 1,2p "$tmp/output") >/dev/null || fail "it grows: $(sed -n 1,2p "$tmp/output")"

kill "$made_up"
wait "$made_up" 2>/dev/null || :

echo "== a healthy pool"
# shellcheck disable=SC2046 # steps, which have no blanks
browse "http://$page/" size=1280x900 open "$(says 'Healthy: 3 nodes')" \
	'until=document.querySelectorAll("#nodes tbody tr").length === 3' \
	'until=document.title.startsWith("KVPool: Healthy")' \
	"$contrast" media=dark "$contrast" media=light \
	"$audit" size=320x640 "until=${fits// /}" "$audit" size=1280x900 \
	"do=document.getElementById('path').focus()" type=odd/ key=Enter \
	'until=document.querySelectorAll("#objects tbody tr").length === 3' \
	'print=[...document.querySelectorAll("#objects .wide .name")].map((e) => e.textContent)' \
	'print=document.querySelectorAll("img, iframe, main script").length' \
	'print=[...document.querySelectorAll("#objects .wide .name")].map((e) => {
		const data = new DataTransfer();
		getSelection().selectAllChildren(e);
		e.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true,
							     cancelable: true }));
		return data.getData("text/plain"); })' \
	'until=[...document.querySelectorAll("#objects .wide .name")].every((e) =>
		e.lastChild.getBoundingClientRect().right <= e.closest("td").getBoundingClientRect().right + 1)' \
	'print=location.hash' "$audit" \
	$(pictures healthy) quiet >"$tmp/all"
# Three audits: of both sizes, and with a list of objects.
sed '1,2d; 7d' "$tmp/all" >"$tmp/output"
[ "$(sed -n '1,2p; 7p' "$tmp/all" | sort -u)" = '[]' ] || fail "audits: $(sed -n '1,2p; 7p' "$tmp/all")"
cut -c 1-300 "$tmp/output"
sed -n 1p "$tmp/output" | jq -e --arg long "odd/$long" 'any(. == $long) and
	any(. == "odd/\\x01\\x0a\\x1b[31m\\u{202e}<img src=x onerror=alert(1)>&amp;") and
	any(. == "odd/\\xff\\xfe")' >/dev/null || fail "names are shown as $(sed -n 1p "$tmp/output")"
[ "$(sed -n 2p "$tmp/output")" = 0 ] || fail "a name became an element"
sed -n 3p "$tmp/output" | jq -e --arg long "odd/$long" --arg odd "odd/$odd" \
	'any(. == $long) and any(. == $odd)' >/dev/null ||
	fail "names are copied as $(sed -n 3p "$tmp/output")"
[ "$(sed -n 4p "$tmp/output")" = '#odd%2F' ] || fail "the address has $(sed -n 4p "$tmp/output")"

echo "== by keyboard alone"
browse "http://$page/#three%2Fone" open "$(says Healthy)" \
	'until=document.querySelectorAll("#objects tbody tr").length === 1' \
	key=Tab 'until=document.activeElement.id === "path"' \
	"until=getComputedStyle(document.activeElement).outlineStyle === 'solid'" \
	key=Tab 'until=document.activeElement.textContent === "Find"' \
	"do=document.getElementById('path').value = 'none'" key=Enter \
	'until=document.getElementById("found").textContent.includes("nothing of this path: none")' quiet

echo "== short of copies: a node is killed while the page is open"
# shellcheck disable=SC2046
browse "http://$page/#three" open "$(says 'Healthy: 3 nodes')" \
	"run=kill -KILL ${pid[c]}" "$(says 'Short of copies: 3 objects, which no other store can take. Start c.')" \
	'until=document.querySelectorAll("#nodes .bad-text").length === 1' \
	'until=document.getElementById("figures").textContent.includes(
		"3 objects lack copies, no other store has room for 3; 0 copies in flight")' \
	"do=location.reload()" "$(says 'Short of copies')" "$contrast" \
	'until=document.querySelectorAll("#objects .bad-text").length === 3' \
	$(pictures short) quiet
wait "${pid[c]}" 2>/dev/null || :
unset "pid[c]"
start_node c --store-size 64M --no-fd-passing --hot-gets 0
wait_until 20 three 3 >/dev/null

echo "== full"
for ((i = 0; i < 200; i++)); do
	head -c $MIB /dev/zero >"$A/kept/k$i" 2>/dev/null || break
done
[ $i -gt 100 ] || fail "only $i were put"
# shellcheck disable=SC2046
browse "http://$page/" open "$(says 'Full: less than 5 % of the stores')" "$contrast" \
	$(pictures full) quiet

echo "== without its master"
# shellcheck disable=SC2046
browse "http://$page/" open "$(says Full)" 'until=samples.length >= 2' "run=kill -KILL ${pid[master]}" \
	"$(says "No master at $page: no answer. Start kvpool-master")" \
	'until=document.title.startsWith("! KVPool: No master")' "$contrast" \
	$(pictures none) quiet
wait "${pid[master]}" 2>/dev/null || :
unset "pid[master]"

echo "== the page of kvpool up, as it is printed"
mkdir "$tmp/up"
up=(--mount "$tmp/up" --name "page.$$" --store-size 64M --store-dir "$tmp/up.store"
	--log-file "$tmp/up.log" --state-file "$tmp/up.state" --keeper=no)
for option in master listen admin; do
	free_port
	up+=(--$option "127.0.0.1:$port")
done
kvpool up "${up[@]}" >"$tmp/up.out" || fail "$(cat "$tmp/up.out")"
also_kill+=("$(jq .pid "$tmp/up/.kvpool/status")")
url=$(awk '$1 == "page" { print $2 }' "$tmp/up.out")
echo x >"$tmp/up/file"
sync "$tmp/up/file"
browse "$url#file" open "$(says 'Healthy: 1 node')" \
	'until=document.querySelectorAll("#objects tbody tr").length === 1' \
	'until=document.querySelectorAll("#events tbody tr").length > 0' \
	"run=kvpool down --mount $tmp/up" "$(says 'Start the pool there again (kvpool up).')" quiet
pass

#!/bin/bash
# The web page of the master's admin address: its headers, what it loads and asks, and,
# in a browser, what it says of a pool that is healthy, short of copies, full, and
# without its master. PAGE_SHOTS=DIR keeps the pictures.
# modes: passthrough
# limit: 180
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
	[[ $policy == "default-src 'none'; "*"frame-ancestors 'none'"* ]] ||
		fail "/$path has the policy: $policy"
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
	get "http://$at" | grep -qx /api/nodes || fail "$at does not list the pages"
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
[ "$asked" = 'api/nodes api/objects api/status' ] || fail "it asks $asked"
http "$page/api/status" >"$tmp/status.json"
http "$page/api/nodes" >"$tmp/nodes.json"
http "$page/api/objects?limit=1" >"$tmp/objects.json"
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

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || :)
if [ -z "$chromium" ]; then
	echo "NOT TESTED: what the page shows; that takes chromium"
	pass
	exit
fi

browse() { python3 "$top/tests/it/browser.py" "$chromium" "$@"; }
shots=${PAGE_SHOTS:-$tmp}
FIRST='document.getElementById("first").textContent'
says() { # TEXT: a condition for the browser
	echo "until=$FIRST.includes($(jq -n --arg t "$1" '$t'))"
}
fits='document.documentElement.scrollWidth <= document.documentElement.clientWidth'
pictures() { # NAME: steps that take them
	echo "size=1280x900" "shot=$shots/$1.png" "media=dark" "shot=$shots/$1-dark.png" \
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

echo "== a healthy pool"
# shellcheck disable=SC2046 # steps, which have no blanks
browse "http://$page/" size=1280x900 open "$(says 'Healthy: 3 nodes')" \
	'until=document.querySelectorAll("#nodes tbody tr").length === 3' \
	'until=document.title.startsWith("KVPool: Healthy")' \
	"$contrast" media=dark "$contrast" media=light \
	"do=document.getElementById('path').focus()" type=odd/ key=Enter \
	'until=document.querySelectorAll("#objects tbody tr").length === 3' \
	'print=[...document.querySelectorAll("#objects .name")].map((e) => e.textContent)' \
	'print=document.querySelectorAll("img, iframe, main script").length' \
	'print=[...document.querySelectorAll("#objects .name")].map((e) => {
		const data = new DataTransfer();
		getSelection().selectAllChildren(e);
		e.dispatchEvent(new ClipboardEvent("copy", { clipboardData: data, bubbles: true,
							     cancelable: true }));
		return data.getData("text/plain"); })' \
	'until=[...document.querySelectorAll("#objects .name")].every((e) =>
		e.lastChild.getBoundingClientRect().right <= e.closest("td").getBoundingClientRect().right + 1)' \
	'print=location.hash' \
	$(pictures healthy) quiet >"$tmp/said"
cut -c 1-300 "$tmp/said"
sed -n 1p "$tmp/said" | jq -e --arg long "odd/$long" 'any(. == $long) and
	any(. == "odd/\\x01\\x0a\\x1b[31m\\u{202e}<img src=x onerror=alert(1)>&amp;") and
	any(. == "odd/\\xff\\xfe")' >/dev/null || fail "names are shown as $(sed -n 1p "$tmp/said")"
[ "$(sed -n 2p "$tmp/said")" = 0 ] || fail "a name became an element"
sed -n 3p "$tmp/said" | jq -e --arg long "odd/$long" --arg odd "odd/$odd" \
	'any(. == $long) and any(. == $odd)' >/dev/null ||
	fail "names are copied as $(sed -n 3p "$tmp/said")"
[ "$(sed -n 4p "$tmp/said")" = '#odd%2F' ] || fail "the address has $(sed -n 4p "$tmp/said")"

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
	"run=kill -KILL ${pid[c]}" "$(says 'Short of copies: 3 objects, for which no store has room. Start c.')" \
	'until=document.querySelectorAll("#nodes .bad-text").length === 1' \
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
browse "http://$page/" open "$(says Full)" "run=kill -KILL ${pid[master]}" \
	"$(says "No master at $page: no answer. Start kvpool-master")" \
	'until=document.title.startsWith("! KVPool: No master")' "$contrast" \
	$(pictures none) quiet
wait "${pid[master]}" 2>/dev/null || :
unset "pid[master]"
pass

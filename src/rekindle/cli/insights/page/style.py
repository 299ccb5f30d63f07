"""The style sheet of the insights page: light and dark, desktop and phone."""

# The statistics; other pages with rates and intervals use it too.
STYLE = """
:root{--grid:var(--line);--raw:var(--c2);--fair:var(--c1);--yes:var(--good);--yesbg:var(--good-bg);
--no:var(--bad);--nobg:var(--bad-bg);--few:var(--soft);--fewbg:var(--sunken);--a:var(--c1);
--b:var(--c5);--c:var(--c4);--d:var(--c2);--e:var(--c6)}
header,main,footer{max-width:70rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:3rem}
h1{font-size:2rem;line-height:1.2;letter-spacing:-.015em;margin:0 0 .4rem}
h2{font-size:1.3rem;letter-spacing:-.01em;margin:0 0 .3rem}
h3{font-size:.82rem;margin:1.6rem 0 .2rem;color:var(--soft);text-transform:uppercase;
letter-spacing:.06em;font-weight:600}
p{margin:.3rem 0 .9rem;max-width:46rem}
.lead{color:var(--soft);font-size:1.05rem}.note,caption,small{color:var(--soft);font-size:.86rem}
caption{text-align:left;padding:0 0 .6rem;caption-side:top}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;
padding:1.5rem 1.6rem 1.3rem;margin:1.4rem 0;min-width:0}
nav{display:flex;flex-wrap:wrap;gap:.3rem 1.1rem;font-size:.9rem;margin:1rem 0 0}
a{text-decoration:none}a:hover{text-decoration:underline}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(10.5rem,1fr));gap:.9rem;
margin:1.6rem 0 0;padding:0;list-style:none}
.facts li{background:var(--card);border:1px solid var(--line);border-radius:14px;
padding:1rem 1.15rem}
.facts b{display:block;font-size:1.75rem;line-height:1.2;font-weight:600;letter-spacing:-.02em;
font-variant-numeric:tabular-nums}
.facts span{display:block;color:var(--soft);font-size:.86rem}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1.3rem;list-style:none;margin:.2rem 0 .8rem;padding:0;
font-size:.86rem;color:var(--soft)}
.key svg{width:22px;height:12px;vertical-align:-1px;margin-right:.4rem}
table{width:100%;border-collapse:collapse;font-variant-numeric:tabular-nums}
th{font-weight:500;text-align:left;font-size:.8rem;color:var(--soft);padding:.2rem .8rem .35rem 0;
vertical-align:bottom}
tbody th{color:var(--ink);font-size:.95rem;padding:.5rem .8rem .5rem 0;vertical-align:middle;
overflow-wrap:anywhere}
tbody th small{display:block;font-weight:400;line-height:1.35}
td{padding:.5rem .8rem .5rem 0;font-size:.92rem;vertical-align:middle}
tbody tr{border-top:1px solid var(--line)}
.num{text-align:right;white-space:nowrap}.wide{white-space:nowrap}
td small{display:block;line-height:1.3}
.plot{width:30%;min-width:9rem;padding-right:1.6rem}.plot svg{display:block;width:100%}
svg{overflow:visible}svg text{fill:var(--soft);font-size:11px}
svg.tall{display:block;width:100%;margin:.4rem 0}
.grid{stroke:var(--grid)}.zero{stroke:var(--soft);stroke-opacity:.55}
.claimed{stroke:var(--soft);stroke-dasharray:2 3}
.raw{stroke:var(--raw);fill:var(--raw)}.fair{stroke:var(--fair);fill:var(--fair)}
.raw line,.fair line{stroke-width:2;stroke-linecap:round}
.hollow{fill:var(--card);stroke:var(--raw);stroke-width:1.5}.band{fill:var(--raw);fill-opacity:.16;stroke:none}.alive{fill:var(--line)}
.chip{display:inline-block;border-radius:99px;padding:.12rem .7rem;font-size:.84rem;
font-weight:600;white-space:nowrap}
.yes{color:var(--yes);background:var(--yesbg)}.no{color:var(--no);background:var(--nobg)}
.few{color:var(--few);background:var(--fewbg)}
@media (min-width:901px){.readings th:first-child{width:24%}.readings .plot{width:27%}
.readings td:nth-child(3){width:12%}}
.readings small{white-space:nowrap}
.readings th small{white-space:normal}
.claim{border-top:1px solid var(--line);margin-top:1.3rem;padding-top:1.3rem}
.claim:first-of-type{border:0;margin-top:.6rem;padding-top:0}
.claim>p{font-size:1.08rem;margin:0 0 .5rem}
.two{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:1.4rem;align-items:start}
.share{height:22px;width:100%;display:block;border-radius:6px;overflow:hidden;margin:.4rem 0 .6rem}
.dot{display:inline-block;width:.7rem;height:.7rem;border-radius:3px;margin-right:.45rem}
.fa{fill:var(--a);background:var(--a)}.fb{fill:var(--b);background:var(--b)}
.fc{fill:var(--c);background:var(--c)}.fd{fill:var(--d);background:var(--d)}
.fe{fill:var(--e);background:var(--e)}
details{margin-top:.8rem}summary{color:var(--link);font-size:.9rem}
dl{margin:.6rem 0 0}dt{font-weight:600;margin-top:.7rem}dd{margin:.1rem 0 0;max-width:50rem}
footer{padding:1rem 1.5rem 3rem;color:var(--soft);font-size:.84rem}
@media (max-width:900px){header{padding-top:1.8rem}h1{font-size:1.55rem}
header,main,footer{padding-left:1rem;padding-right:1rem}section{padding:1.1rem 1rem 1rem}
.two{grid-template-columns:minmax(0,1fr)}.facts{grid-template-columns:1fr 1fr;gap:.6rem}
.facts li{padding:.8rem .9rem}.facts b{font-size:1.35rem}
.rows,.rows thead,.rows tbody{display:block}
.rows thead tr{display:block}.rows thead .plot{display:block}
.rows thead th:not(.plot){position:absolute;width:1px;height:1px;overflow:hidden;
clip-path:inset(50%)}
.rows tbody tr{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));
gap:.1rem .9rem;padding:.7rem 0}
.rows th,.rows .plot{grid-column:1/-1;width:auto;padding:0}
.rows td{padding:0;text-align:left;white-space:normal}
.readings tbody tr{grid-template-columns:1fr auto}
.readings .from{order:1;grid-column:1/-1;display:flex;flex-wrap:wrap;gap:.2rem 1.6rem;margin-top:.3rem}
.rows td[data-label]::before{content:attr(data-label);display:block;font-size:.76rem;
color:var(--soft)}.rows td:empty{display:none}}
@media print{section,.facts li{break-inside:avoid;border-color:#ccc}nav{display:none}}
""".strip()

OVERVIEW_STYLE = """
header,main,footer{max-width:64rem}
header{padding-top:1.5rem}
.kicker{display:flex;justify-content:space-between;gap:1rem;margin:0;font-size:var(--small);
color:var(--soft);max-width:none}
h1{font-size:1.9rem;margin:.1rem 0 .3rem}
header .lead{font-size:1rem;color:var(--ink);max-width:none;margin:0 0 .6rem}
.tabs{display:flex;gap:1.4rem;border-bottom:1px solid var(--line);margin:0;font-size:.92rem}
.tabs a{padding:.35rem 0 .45rem;color:var(--soft);border-bottom:2px solid transparent;
margin-bottom:-1px}
.tabs a:first-child{color:var(--ink);border-color:var(--accent);font-weight:600}
.facts{display:flex;flex-wrap:wrap;justify-content:space-between;gap:.4rem 1.6rem;
margin:.9rem 0 .2rem}
.facts li{background:none;border:0;padding:0;min-width:7rem}
.facts b{font-size:1.9rem}.facts span{color:var(--ink)}.facts small{display:block;font-size:var(--tiny)}
.overview section{padding:1.2rem 1.4rem 1rem;margin:1.1rem 0}
.overview section.plain{background:none;border:0;padding:0;margin:.6rem 0}
.overview section>.note{max-width:none;margin:0 0 .5rem}
.overview h2{font-size:1.15rem}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
.chart{padding-left:2.9rem}.weeks{overflow:visible}
.weeks .title{font-weight:600;fill:var(--ink);font-size:12px}
.weeks .hit{fill:transparent}.weeks a:hover .hit{fill:var(--sunken);fill-opacity:.7}
.weeks .cost{fill:var(--c2)}.weeks .rate{fill:var(--c1)}
.weeks .range{stroke:var(--c1);stroke-width:2;stroke-linecap:round;stroke-opacity:.55}
.weeks .few{fill:var(--bg);stroke:var(--c1);stroke-width:1.5}
.row{border-top:1px solid var(--line);margin:0}
.row>summary{display:grid;grid-template-columns:minmax(9rem,1fr) 14rem 4.2rem 5.4rem 9rem;
gap:.1rem 1rem;align-items:center;padding:.55rem 0;list-style:none;color:var(--ink);
font-size:.95rem}
.row.group>summary{grid-template-columns:minmax(9rem,1fr) 14rem 5.2rem 4.2rem 4.6rem 7rem}
.row.known>summary{grid-template-columns:minmax(0,1fr) 7rem}
.row>summary::-webkit-details-marker{display:none}
.row>summary:hover{background:var(--sunken)}
.row .more::after{content:" ▸";color:var(--soft)}.row[open] .more::after{content:" ▾"}
.row small{display:block;font-weight:400;line-height:1.25;font-size:var(--tiny);color:var(--soft)}
.row .more small{display:inline;margin-left:.25rem}
.row .more{white-space:nowrap}
.row .name{overflow-wrap:anywhere;font-weight:600}
.row .name code{background:none;padding:0;font-size:.92rem;font-weight:600}
.row .plot{width:auto;min-width:0;padding:0}
svg.rate,svg.share-bar{display:block;width:100%}
svg.rate rect{fill:var(--c1);fill-opacity:.75}svg.rate .faint{fill-opacity:.3}
svg.rate line{stroke:var(--ink);stroke-opacity:.65;stroke-width:1.5}
svg.share-bar rect{fill:var(--c2)}
.lines{grid-column:1/-1;display:block;min-width:0}
.line{display:flex;gap:.6rem;align-items:baseline;margin:0;max-width:none;font-size:var(--small);
min-width:0}
.line b{font-weight:400;color:var(--soft);flex:none}
.line code{background:none;padding:0;color:var(--bad);overflow:hidden;text-overflow:ellipsis;
white-space:nowrap;min-width:0}
.line.mend code{color:var(--good)}
.row[open] .line code{white-space:normal}
.pair{display:block;min-width:0}.pair .was{background:var(--bad-bg);color:var(--bad)}
.pair .then{display:block;margin-top:.25rem;font-size:var(--small);color:var(--soft)}
.pair .then::before{content:"→ "}.pair .then code{background:var(--good-bg);color:var(--good)}
.sessions{list-style:none;margin:.1rem 0 .8rem;padding:0 0 0 .9rem;border-left:2px solid var(--line)}
.sessions li{display:grid;grid-template-columns:minmax(0,1fr) auto;gap:0 1rem;padding:.3rem 0;
font-size:.9rem;align-items:baseline}
.sessions li.note{display:block}
.sessions b{font-weight:500;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;
grid-column:1/-1}
.sessions small{display:block;font-size:var(--tiny)}
.sessions code{font-size:var(--tiny);user-select:all}
#costly .sessions{border:0;padding:0}#costly li{border-top:1px solid var(--line);padding:.45rem 0}
.fold>summary{padding:.5rem 0;border-top:1px solid var(--line)}
.fold{margin:0}
@supports selector(:has(*)){
.statistics{display:none}
body:has(.statistics:target,.statistics :target) .statistics{display:block}
body:has(.statistics:target,.statistics :target) .overview,
body:has(.statistics:target,.statistics :target) .facts:not(.statistics .facts){display:none}
body:has(.statistics:target,.statistics :target) .tabs a:first-child{color:var(--soft);
border-color:transparent;font-weight:400}
body:has(.statistics:target,.statistics :target) .tabs a:last-child{color:var(--ink);
border-color:var(--accent);font-weight:600}}
.statistics>h2{margin-top:1.2rem}.statistics .facts{margin-top:1rem}
#statistics{scroll-margin-top:100vh}.sessions{scroll-margin-top:5rem}
@media (max-width:720px){
.facts{gap:.8rem 1.2rem}.facts li{min-width:0;flex:1 1 40%}.facts b{font-size:1.5rem}
h1{font-size:1.5rem}.overview section{padding:1rem}
.row>summary,.row.group>summary{grid-template-columns:1fr auto auto;gap:.15rem .8rem}
.row .name{grid-column:1/3}.row .more{grid-row:1;grid-column:3}
.row.known>summary{grid-template-columns:minmax(0,1fr) auto}.row.known .more{grid-column:2}
.row.group .plot{grid-column:1/-1}.row.group .num{font-size:var(--small)}
.row.group .num:not(.more){text-align:left}
.sessions li{grid-template-columns:minmax(0,1fr)}
.sessions code{justify-self:start;margin-top:.15rem}}
@media print{.statistics{display:block}}
""".strip()

"""The style sheet of the insights page: light and dark, desktop and phone."""

STYLE = """
:root{color-scheme:light dark;--bg:#fbfaf8;--card:#fff;--ink:#1d1b18;--soft:#6a645c;--line:#e6e1d9;
--grid:#eeeae3;--raw:#2f6fb8;--rawbg:#2f6fb826;--fair:#c05f15;--yes:#2b7a45;--yesbg:#e6f3ea;
--no:#a8352e;--nobg:#fbeceb;--few:#6a645c;--fewbg:#f0ede8;--a:#c4574b;--b:#d9a13b;--c:#7f76b8;
--d:#5d9aa5;--e:#b5ada2}
@media (prefers-color-scheme:dark){:root{--bg:#161513;--card:#1e1c1a;--ink:#e9e5df;--soft:#a29b91;
--line:#34302c;--grid:#2a2724;--raw:#7fb2ee;--rawbg:#7fb2ee2b;--fair:#f0a06a;--yes:#86d3a0;
--yesbg:#1d2f24;--no:#f39a92;--nobg:#34201e;--few:#b3aca2;--fewbg:#2a2724;--a:#d8766b;--b:#d8ab58;
--c:#9d95d3;--d:#76b3be;--e:#8d867c}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
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
a{color:var(--raw);text-decoration:none}a:hover{text-decoration:underline}
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
.hollow{fill:var(--card);stroke:var(--raw);stroke-width:1.5}.band{fill:var(--rawbg);stroke:none}.alive{fill:var(--line)}
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
details{margin-top:.8rem}summary{cursor:pointer;color:var(--raw);font-size:.9rem}
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

"""How messages, calls, diffs and sub-agents look, on shared pages and in the browser.

`MESSAGES` styles what the renderers of transcripts build; `PROMPT_LIST` the table of prompts beside it;
`SHARED_PAGE` the rest of a page that is one file. The colors are those of `style`.
"""

from __future__ import annotations

from .style import BASE, TOKENS

MESSAGES = """
.turn{margin:0 0 2.2rem}
.ask{background:var(--user-bg);border:1px solid var(--user-line);border-radius:12px;
padding:.7rem 1rem .75rem;margin:0 0 1rem}
.ask>.head{display:flex;justify-content:space-between;gap:1rem;font-size:.8rem;color:var(--soft);
margin:0 0 .2rem}
.ask>.head a{color:var(--user);font-weight:600;text-decoration:none}
.event{display:flex;align-items:center;gap:.8rem;color:var(--soft);font-size:.85rem;margin:1.2rem 0}
.event::before,.event::after{content:"";height:1px;background:var(--line);flex:1}
.event.stop{color:var(--bad)}
.md>:first-child,.md>*>:first-child{margin-top:0}.md>:last-child{margin-bottom:0}
.md p,.md ul,.md ol,.md .code,.md .wide{margin:.6rem 0}
.md ul,.md ol{padding-left:1.4rem}.md li{margin:.2rem 0}.md li>p{margin:.2rem 0}
.md h3,.md h4,.md h5,.md h6{font-size:1.02rem;line-height:1.35;margin:1.2rem 0 .4rem;font-weight:650}
.md h3{font-size:1.18rem}.md h4{font-size:1.08rem}
.md blockquote{margin:.6rem 0;padding-left:.9rem;border-left:3px solid var(--line);color:var(--soft)}
.md hr{border:0;border-top:1px solid var(--line);margin:1.2rem 0}
.md table{border-collapse:collapse;font-size:.9rem;width:auto}
.md th,.md td{border:1px solid var(--line);padding:.3rem .6rem;vertical-align:top;overflow-wrap:normal}
.md th{background:var(--sunken);font-weight:600}
.wide{overflow-x:auto}
.plain{white-space:pre-wrap}
.ask code,.md code{font-size:.83rem}
.ask .md :not(pre)>code{background:var(--card)}
pre{margin:0;font-size:.83rem;line-height:1.5;white-space:pre-wrap;overflow-wrap:anywhere;tab-size:4}
.code,pre.out,pre.cmd,pre.args{background:var(--sunken);border-radius:8px;padding:.65rem .85rem}
pre.out,pre.cmd,pre.args{margin:.5rem 0}
pre.out{max-height:30rem;overflow:auto}
.code{position:relative}
.code pre{overflow-x:auto;white-space:pre;overflow-wrap:normal;background:none;padding:0;border-radius:0}
.lang{position:absolute;top:.3rem;right:.6rem;font-size:.7rem;color:var(--soft)}
.noimage,.omitted{color:var(--soft);font-style:italic;font-size:.85rem}
details.call,details.note,details.run{margin:.35rem 0;border:1px solid var(--line);border-radius:9px;
background:var(--card);padding:0 .8rem}
.run details{margin-left:0;border-color:transparent;border-radius:6px}
.run details:hover,.run details[open]{border-color:var(--line)}
details.run{background:none}
details.run[open],details.call[open],details.note[open]{padding-bottom:.35rem}
details.call+.md{margin-top:.9rem}
.md.said{margin:.8rem 0}
summary{cursor:pointer;list-style:none}
summary::-webkit-details-marker{display:none}
.call>summary,.note>summary,.agent>summary,.run>summary{display:flex;gap:.55rem;align-items:baseline;
padding:.38rem 0;font-size:.86rem;min-width:0}
.note>summary{color:var(--soft)}
details.note:not([open]){border-color:transparent;background:none}
.call>summary b,.run>summary b{font-weight:600;white-space:nowrap;max-width:14rem;overflow:hidden;
text-overflow:ellipsis}
.call>summary i,.run>summary i{font:.8rem var(--mono);color:var(--soft);overflow:hidden;
text-overflow:ellipsis;white-space:nowrap;flex:1;min-width:0}
.mark{width:1rem;flex:none;text-align:center;color:var(--soft)}
.ok>summary .mark,.run>summary .mark,.plus{color:var(--good)}
.failed>summary .mark,.minus{color:var(--bad)}
.rejected>summary .mark{color:var(--warn)}
.label,.size{white-space:nowrap;font-size:.8rem;font-variant-numeric:tabular-nums}
.failed>summary .label{color:var(--bad)}.label{color:var(--soft)}
.rejected>summary .label{color:var(--warn);font-weight:600}
details.failed{border-color:var(--bad-line);background:var(--bad-bg)}
details.rejected{border-color:var(--warn-line);background:var(--warn-bg)}
details.rejected .diff{opacity:.75}
.words{margin:.3rem 0 .6rem;padding:.1rem 0 .1rem .9rem;border-left:3px solid var(--warn)}
.words p{margin:.2rem 0}
.path{font:.8rem var(--mono);margin:.5rem 0 .2rem}
.path em{color:var(--soft)}
.diff{font:.8rem/1.5 var(--mono);tab-size:4;border:1px solid var(--line);border-radius:8px;
overflow:auto;margin:.35rem 0;max-height:40rem;background:var(--card);padding:.25rem 0}
.diff span{display:block;white-space:pre-wrap;padding:0 .7rem 0 1.7rem;position:relative}
.diff span::before{position:absolute;left:.65rem;color:var(--soft)}
.diff .add{background:var(--add)}.diff .add::before{content:"+";color:var(--good)}
.diff .del{background:var(--del)}.diff .del::before{content:"−";color:var(--bad)}
.diff .gap{background:var(--sunken);color:var(--soft)}.diff .gap::before{content:"⋯"}
.diff em{font-style:normal;border-radius:2px}
.add em{background:var(--add-mark)}.del em{background:var(--del-mark)}
.ask img,.call img,.picture{max-width:100%;border-radius:8px;margin:.5rem 0;display:block}
.agents{border-top:1px solid var(--line);padding-top:1rem}
.agents h2{font-size:1.1rem;margin:0 0 .6rem}
details.agent{border:1px solid var(--line);border-radius:12px;padding:.2rem 1rem;margin:.6rem 0}
.agent>summary{font-size:.95rem}.agent>summary b{flex:1;min-width:0;font-weight:600}
.agent>summary::before,.note>summary::before,.more>summary::before{content:"▸";color:var(--soft);
margin-right:.35rem}
details[open].agent>summary::before,details[open].note>summary::before,
details[open].more>summary::before{content:"▾"}
.started{font-size:.86rem;margin:.4rem 0}
.more{margin:0 0 1rem;font-size:.85rem;color:var(--soft)}
.more>summary{width:max-content}
.more dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem 1rem;margin:.5rem 0 0}
.more dt{color:var(--soft)}.more dd{margin:0;color:var(--ink);overflow-wrap:anywhere}
.k,.kn,.kd,.kc,.kr,.kp,.kt,.ow{color:var(--keyword)}
.s,.s1,.s2,.sb,.sc,.sd,.se,.sh,.si,.sx,.sr,.ss,.sa,.dl{color:var(--string)}
pre .c,pre .c1,pre .cm,pre .ch,pre .cs,pre .cp{color:var(--comment);font-style:italic}
.nf,.nc,.nb,.nt,.nd,.nn,.bp,.fm{color:var(--symbol)}
.m,.mi,.mf,.mh,.il,.mb,.mo,.nv,.na{color:var(--number)}
.gi{color:var(--good)}.gd{color:var(--bad)}
.call>summary::after,.run>summary::after{content:"›";color:var(--soft);flex:none}
.call[open]>summary::after,.run[open]>summary::after{transform:rotate(90deg)}
@media (max-width:60rem){.call>summary b{max-width:7rem}.diff,pre{font-size:.76rem}}
@media print{pre.out,.diff{max-height:none;overflow:visible}.ask{break-after:avoid}
details.call,.facts li{break-inside:avoid}a{text-decoration:none}}
""".strip()

PROMPT_LIST = """
nav.prompts{position:sticky;top:1rem;align-self:start;max-height:calc(100vh - 2rem);overflow:auto;
font-size:.85rem;scrollbar-width:thin}
nav.prompts h2{font-size:.82rem;color:var(--soft);font-weight:600;margin:.3rem 0 .5rem}
nav.prompts ol{list-style:none;margin:0;padding:0}
nav.prompts li a{display:grid;grid-template-columns:1.9rem minmax(0,1fr);padding:.35rem .4rem .4rem 0;
border-radius:8px;text-decoration:none;color:var(--ink);line-height:1.4}
nav.prompts li a:hover{background:var(--sunken)}
nav.prompts span{display:-webkit-box;-webkit-line-clamp:2;-webkit-box-orient:vertical;overflow:hidden;
overflow-wrap:anywhere}
nav.prompts .no{color:var(--soft);text-align:right;padding-right:.6rem;display:block;
overflow-wrap:normal;font-variant-numeric:tabular-nums}
nav.prompts small{grid-column:2;color:var(--soft);font-size:.78rem}
""".strip()

SHARED_PAGE = """
html{scroll-padding-top:1rem}
body{font-size:16px;line-height:1.6;overflow-wrap:anywhere}
a{color:var(--user);text-decoration-thickness:1px;text-underline-offset:2px}
.top,.body,footer{max-width:76rem;margin:0 auto;padding:0 1.5rem}
.top{padding-top:2.2rem}
.kicker{margin:0 0 .35rem;color:var(--soft);font-size:.88rem}
.kicker b{color:var(--ink);font-weight:600}
h1{font-size:1.75rem;line-height:1.22;letter-spacing:-.015em;margin:0 0 1.1rem;max-width:56rem}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:1px;padding:0;
margin:0 0 .9rem;list-style:none;background:var(--line);border:1px solid var(--line);
border-radius:12px;overflow:hidden}
.facts li{background:var(--card);padding:.7rem .95rem .75rem}
.facts b{display:block;font-size:1.25rem;line-height:1.3;font-weight:600;letter-spacing:-.01em;
font-variant-numeric:tabular-nums}
.facts li>span{color:var(--soft);font-size:.82rem;line-height:1.35;display:block}
.facts .size{font-size:inherit}
.notice{margin:0 0 .9rem;padding:.5rem .95rem;border-radius:10px;font-size:.88rem;
border:1px solid var(--line);background:var(--card);color:var(--soft)}
.notice b{color:var(--ink);font-weight:600}
.notice.warn{border-color:var(--warn-line);background:var(--warn-bg);color:var(--ink)}
.outcome{display:grid;grid-template-columns:repeat(auto-fit,minmax(20rem,1fr));gap:.9rem;
margin:0 0 .9rem}
.outcome>div{padding:.7rem .95rem .8rem;border:1px solid var(--line);border-radius:12px;
background:var(--card);min-width:0}
.outcome h2{font-size:.82rem;color:var(--soft);font-weight:600;margin:0 0 .2rem}
.outcome p{margin:0;font-size:.93rem;line-height:1.5}
.outcome p a{color:inherit;text-decoration:none}.outcome p a:hover{text-decoration:underline}
.outcome ul{list-style:none;margin:0;padding:0;font-size:.85rem;color:var(--soft)}
.outcome li{display:flex;justify-content:space-between;gap:1rem}
.outcome code{color:var(--ink);overflow:hidden;text-overflow:ellipsis;white-space:nowrap;
direction:rtl;unicode-bidi:plaintext;text-align:left;background:none;padding:0}
.body{display:grid;grid-template-columns:16.5rem minmax(0,1fr);gap:0 2.5rem;margin-top:1.4rem}
.body.alone{grid-template-columns:minmax(0,54rem)}
main{min-width:0;max-width:54rem}
:target>.ask,:target.agent{outline:2px solid var(--user);outline-offset:2px}
.index h2{font-size:.95rem;color:var(--soft);font-weight:600;margin:1.4rem 0 .4rem}
.index ul{list-style:none;margin:0;padding:0;border:1px solid var(--line);border-radius:12px;
background:var(--card)}
.index li{padding:.65rem 1rem .7rem}.index li+li{border-top:1px solid var(--line)}
.index li a{display:block;text-decoration:none;font-weight:600;line-height:1.4}
.index li small{color:var(--soft);font-size:.82rem}
footer{padding-top:1rem;padding-bottom:3rem;color:var(--soft);font-size:.8rem}
@media (max-width:60rem){.outcome{grid-template-columns:minmax(0,1fr)}
.body{grid-template-columns:minmax(0,1fr)}
nav.prompts{position:static;max-height:19rem;border:1px solid var(--line);border-radius:12px;
background:var(--card);padding:.4rem .8rem;margin:0 0 1.4rem}
.top,.body,footer{padding-left:1rem;padding-right:1rem}.top{padding-top:1.3rem}
h1{font-size:1.32rem;margin-bottom:.8rem}.facts{grid-template-columns:1fr 1fr}
.facts li{padding:.5rem .8rem .55rem}.facts b{font-size:1.08rem}}
@media print{body{background:#fff;font-size:11pt}nav.prompts{position:static;max-height:none}
.body{display:block}}
""".strip()

SHARED_STYLE = f"{TOKENS}\n{BASE}\n{MESSAGES}\n{PROMPT_LIST}\n{SHARED_PAGE}"

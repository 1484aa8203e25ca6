"""Texts that would run code on a page that takes texts for HTML, or links for harmless."""

from __future__ import annotations

CORES = (
    "<script>hacked=1</script>",
    "<img src=x onerror=hacked=1>",
    "<svg onload=hacked=1>",
    "<svg><script>hacked=1</script></svg>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
    "<a href=javascript:hacked=1>x</a>",
    "<body onload=hacked=1>",
    "<input autofocus onfocus=hacked=1>",
    "<details open ontoggle=hacked=1>",
    "<video><source onerror=hacked=1></video>",
    "<math><mtext></p><style><!--</style><img title='--></mglyph><img src=x onerror=hacked=1>'>",
    "<style>*{background:url(//evil.example)}</style>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<base href=//evil.example/>",
    "<form action=//evil.example><button>x</button></form>",
    "<object data=javascript:hacked=1></object>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<template><script>hacked=1</script></template>",
    "&lt;script&gt;hacked=1&lt;/script&gt;",
    '"><script>hacked=1</script>',
    "'-hacked=1-'",
    "{{constructor.constructor('hacked=1')()}}",
    "${hacked=1}",
    "[x](javascript:hacked=1)",
    "[x](JaVaScRiPt:hacked=1)",
    "[x](data:text/html,<script>hacked=1</script>)",
    "![x](//evil.example/x.png)",
    "![x](https://evil.example/x.png)",
    "[x](vbscript:hacked=1)",
    "[x](<javascript:hacked=1>)",
    '<https://evil.example" onmouseover="hacked=1>',
    'https://evil.example/"onmouseover=hacked=1',
    "`<img src=x onerror=hacked=1>`",
)
WRAPPINGS = ("{}", "**{}**", "- {}", "> {}", "```html\n{}\n```", "| a |\n|---|\n| {} |", "# {}")

PAYLOADS = tuple(wrapping.format(core) for wrapping in WRAPPINGS for core in CORES)
"""All of them, more than 200."""

FOUND = (
    "(root => ({scripts: typeof hacked, "
    "elements: [...root.querySelectorAll('script,img,svg,iframe,object,embed,link,style,base,form,meta,video,math,template')]"
    ".filter(each => !each.matches('.composer')).map(each => each.outerHTML.slice(0, 99)), "
    "attributes: [...root.querySelectorAll('*')].flatMap(each => [...each.attributes])"
    ".filter(each => each.name.startsWith('on')).map(each => each.name), "
    "links: [...root.querySelectorAll('[href]')].map(each => each.protocol)"
    ".filter(each => !['http:', 'https:', 'mailto:'].includes(each))}))"
)
"""A function of JavaScript: what it finds below an element that texts cannot have made if they are shown as text."""

HARMLESS = {"scripts": "undefined", "elements": [], "attributes": [], "links": []}

"""A page as tests read it: text, links, resources and tables."""

from html.parser import HTMLParser

VOID = {"meta", "img", "source", "br", "link"}
# Between a number and its unit.
SPACE = "\N{NO-BREAK SPACE}"


class Page(HTMLParser):
    """Text, links, resources and the rows of tables, and a check that tags are closed in order."""

    def __init__(self, text: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.links: list[str] = []
        self.resources: list[str] = []
        self.rows: list[list[str]] = []
        self.headings: list[str] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        values = dict(attrs)
        self.links += [values["href"]] if "href" in values else []
        self.resources += [values[name] for name in ("src", "srcset") if name in values]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "h2":
            self.headings.append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if self.open[-1:] == ["h2"]:
            self.headings[-1] += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

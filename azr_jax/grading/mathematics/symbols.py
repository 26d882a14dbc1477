"""Tables of LaTeX commands and Unicode characters for the parser."""

# Commands that only affect layout, or delimit a formula within text.
LAYOUT = frozenset("()[]") | frozenset(
  "left right middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl "
  "Biggr displaystyle textstyle scriptstyle limits nolimits hfill rm bf it "
  "mathstrut strut null".split()
)
SPACES = frozenset(", ; : > quad qquad enspace thinspace space".split()) | {" "}
# Commands whose argument is text (TEXT), or a formula in another font (FONTS).
TEXT = frozenset(
  "text textbf textit textrm textnormal textsf texttt textup mbox hbox "
  "emph".split()
)
FONTS = frozenset(
  "mathrm mathbf mathit mathsf mathtt mathnormal boldsymbol bm pmb "
  "operatorname underline mathop mathord mathbin".split()
)
# Commands that are dropped together with their first argument.
DROPPED = frozenset("color textcolor hspace vspace phantom label tag".split())
ARGUMENTS = {
  "frac": 2,
  "binom": 2,
  "sqrt": 1,
  "overline": 1,
  "dot": 1,
  "hat": 1,
  "vec": 1,
  "tilde": 1,
  "boxed": 1,
  "mathbb": 1,
  "mathcal": 1,
  "mathfrak": 1,
  "pmod": 1,
  "overset": 2,
  "underset": 2,
}
FUNCTIONS = frozenset(
  "sin cos tan cot sec csc arcsin arccos arctan arccot sinh cosh tanh log ln "
  "lg exp".split()
)
# Names that, without a backslash, are functions only before a bracket.
BRACKETED = frozenset("sqrt min max gcd lcm".split())
GREEK = frozenset(
  "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi "
  "pi rho sigma tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi "
  "Sigma Upsilon Phi Psi Omega".split()
)
# Alternative names of commands.
ALIASES = {
  "dfrac": "frac",
  "tfrac": "frac",
  "cfrac": "frac",
  "dbinom": "binom",
  "tbinom": "binom",
  "bar": "overline",
  "widehat": "hat",
  "overrightarrow": "vec",
  "fbox": "boxed",
  "varnothing": "emptyset",
  "O": "emptyset",
  "infin": "infty",
  "dots": "ldots",
  "cdots": "ldots",
  "dotsc": "ldots",
  "dotsb": "ldots",
  "varepsilon": "epsilon",
  "varphi": "phi",
  "vartheta": "theta",
  "arctg": "arctan",
  "tg": "tan",
  "ctg": "cot",
  "cosec": "csc",
  "Bbb": "mathbb",
  "bigtriangleup": "triangle",
  "degrees": "degree",
}
# The sign that each command or character stands for.
SIGNS = {
  "le": "<=",
  "leq": "<=",
  "leqslant": "<=",
  "leqq": "<=",
  "ge": ">=",
  "geq": ">=",
  "geqslant": ">=",
  "geqq": ">=",
  "lt": "<",
  "gt": ">",
  "ne": "!=",
  "neq": "!=",
  "approx": "~",
  "simeq": "~",
  "thickapprox": "~",
  "in": "in",
  "cup": "cup",
  "bigcup": "cup",
  "cap": "cap",
  "setminus": "setminus",
  "backslash": "setminus",
  "smallsetminus": "setminus",
  "cdot": "*",
  "times": "*",
  "ast": "*",
  "div": "/",
  "pm": "+-",
  "mp": "-+",
  "lbrace": "{",
  "rbrace": "}",
  "{": "{",
  "}": "}",
  "lbrack": "[",
  "rbrack": "]",
  "langle": "<|",
  "rangle": "|>",
  "mid": "|",
  "vert": "|",
  "lvert": "|",
  "rvert": "|",
  "|": "|",
  "colon": ":",
  "%": "%",
  "$": "$",
  "pounds": "$",
  "euro": "$",
  "#": "#",
  "&": "&",
  "\\": "\\",
  "land": "and",
  "wedge": "and",
  "lor": "or",
  "vee": "or",
  "prime": "'",
}
# Other known commands. An unknown name that starts with a known one is split,
# as in `\cosx`.
_OTHERS = (
  "angle triangle odot parallel perp cong sim equiv mod bmod to mapsto "
  "Rightarrow implies iff infty emptyset ldots circ degree lfloor rfloor lceil "
  "rceil sum prod int lim max min gcd lcm det deg arg forall exists subset "
  "subseteq supset notin not nmid partial nabla ell Re Im begin end choose "
  "square"
).split()
KNOWN = (
  frozenset(_OTHERS)
  | FUNCTIONS
  | GREEK
  | LAYOUT
  | SPACES
  | TEXT
  | FONTS
  | DROPPED
  | ARGUMENTS.keys()
  | ALIASES.keys()
  | SIGNS.keys()
)
LONGEST_NAME = max(map(len, KNOWN))
OPENING = {"(": ")", "[": "]", "{": "}", "<|": "|>"}
CLOSING = frozenset(OPENING.values())
RELATIONS = frozenset(("=", "~", "<", ">", "<=", ">=", "!="))

_GREEK_LETTERS = dict(
  zip(
    "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΦΨΩ",
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi "
    "pi rho sigma tau upsilon phi chi psi omega Gamma Delta Theta Lambda Xi Pi "
    "Sigma Phi Psi Omega".split(),
    strict=True,
  )
)
_COMMANDS = _GREEK_LETTERS | {
  "×": "times",
  "·": "cdot",
  "⋅": "cdot",
  "∙": "cdot",
  "≤": "le",
  "⩽": "le",
  "≥": "ge",
  "⩾": "ge",
  "≠": "ne",
  "≈": "approx",
  "∞": "infty",
  "√": "sqrt",
  "∪": "cup",
  "∩": "cap",
  "∈": "in",
  "∅": "emptyset",
  "±": "pm",
  "∓": "mp",
  "∠": "angle",
  "△": "triangle",
  "∥": "parallel",
  "⊥": "perp",
  "⟨": "langle",
  "⟩": "rangle",
  "…": "ldots",
  "⌊": "lfloor",
  "⌋": "rfloor",
  "⌈": "lceil",
  "⌉": "rceil",
  "£": "$",
  "€": "$",
  "′": "prime",
}
_TEXTS = {
  "÷": "/",
  "°": "^\\circ ",
  "º": "^\\circ ",
  "²": "^2",
  "³": "^3",
  "½": "\\frac12 ",
  "¼": "\\frac14 ",
  "¾": "\\frac34 ",
  "ℝ": "\\mathbb{R}",
  "ℤ": "\\mathbb{Z}",
  "ℕ": "\\mathbb{N}",
  "，": ",",
  "、": ",",
  "；": ";",
  "：": ":",
  "（": "(",
  "）": ")",
  "\u2019": "'",
  "\u2018": "'",
  "\u201c": '"',
  "\u201d": '"',
  "\u00a0": " ",
  "\u2009": " ",
  "\u202f": " ",
  "\x00": " ",
} | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212\uff0d", "-")
CHARACTERS = str.maketrans(
  _TEXTS | {letter: f"\\{name} " for letter, name in _COMMANDS.items()}
)

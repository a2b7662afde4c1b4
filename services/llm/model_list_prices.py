"""List prices of models, which hold where the configuration gives none: a copy of their providers'
lists, as of the day below.

US dollars per million tokens of a call by the standard tier: input, input read from a cache, input
written to one (for five minutes), output. Where a provider takes more for a long context, this is
the short one's price. Source: the data of the Python package genai-prices 0.2.3 (MIT), whose own
sources are the providers' pages of prices; providers `openai` and `anthropic`, text models only. A
cached price that is not listed is that of input. Names are without the date of an edition.
"""
from decimal import Decimal

from services.llm.call_cost import Price, price_units

AS_OF = "2026-10-14"
_TABLE = """
chatgpt-4o                    5      5      5     15
codex-mini                  1.5  0.375    1.5      6
gpt-4.1                       2    0.5      2      8
gpt-4.1-mini                0.4    0.1    0.4    1.6
gpt-4.1-nano                0.1  0.025    0.1    0.4
gpt-4o                      2.5   1.25    2.5     10
gpt-4o-mini                0.15  0.075   0.15    0.6
gpt-5                      1.25  0.125   1.25     10
gpt-5-chat                 1.25  0.125   1.25     10
gpt-5-codex                1.25  0.125   1.25     10
gpt-5-mini                 0.25  0.025   0.25      2
gpt-5-nano                 0.05  0.005   0.05    0.4
gpt-5-pro                    15     15     15    120
gpt-5.1                    1.25  0.125   1.25     10
gpt-5.1-codex              1.25  0.125   1.25     10
gpt-5.1-codex-max          1.25  0.125   1.25     10
gpt-5.1-chat               1.25  0.125   1.25     10
gpt-5.1-codex-mini         0.25  0.025   0.25      2
gpt-5.1-mini               0.25  0.025   0.25      2
gpt-5.2                    1.75  0.175   1.75     14
gpt-5.2-chat               1.75  0.175   1.75     14
gpt-5.2-codex              1.75  0.175   1.75     14
gpt-5.2-pro                  21     21     21    168
gpt-5.3                    1.75  0.175   1.75     14
gpt-5.3-chat               1.75  0.175   1.75     14
gpt-5.3-codex              1.75  0.175   1.75     14
gpt-5.4                     2.5   0.25    2.5     15
gpt-5.4-mini               0.75  0.075   0.75    4.5
gpt-5.4-nano                0.2   0.02    0.2   1.25
gpt-5.4-pro                  30     30     30    180
gpt-5.5                       5    0.5      5     30
gpt-5.5-chat                  5    0.5      5     30
gpt-5.5-codex                 5    0.5      5     30
gpt-5.5-pro                  30     30     30    180
gpt-5.6-luna                0.2   0.02   0.25    1.2
gpt-5.6-sol                   4    0.4      5     20
gpt-5.6                       4    0.4      5     20
gpt-5.6-terra                 2    0.2    2.5     12
gpt-6-astra                  10      1   12.5     50
gpt-6-luna                  0.1   0.01  0.125    0.5
gpt-6-sol                     2    0.2    2.5     10
gpt-6.1-sol                   2    0.1    2.5     10
gpt-6.1-terra                 1   0.05   1.25      5
gpt-chat                      5    0.5      5     30
gpt-oss-120b              0.039  0.039  0.039   0.18
gpt-oss-20b               0.029  0.029  0.029   0.14
o1                           15    7.5     15     60
o1-pro                      150    150    150    600
o3                            2    0.5      2      8
o3-mini                     1.1   0.55    1.1    4.4
o3-pro                       20     20     20     80
o4-mini                     1.1  0.275    1.1    4.4
claude-3-5-haiku            0.8   0.08      1      4
claude-3-5-sonnet             3    0.3   3.75     15
claude-3-7-sonnet             3    0.3   3.75     15
claude-3-haiku             0.25   0.03    0.3   1.25
claude-3-opus                15    1.5  18.75     75
claude-3-sonnet               3    0.3   3.75     15
claude-fable-5               10      1   12.5     50
claude-fable-5-1             10   0.25   12.5     50
claude-fable-5-2              8    0.2     10     40
claude-haiku-4-5              1    0.1   1.25      5
claude-haiku-5-5            0.1   0.01  0.125    0.5
claude-mythos-5-2             8    0.2     10     40
claude-opus-4-0              15    1.5  18.75     75
claude-opus-4                15    1.5  18.75     75
claude-opus-4-1              15    1.5  18.75     75
claude-opus-4-5               5    0.5   6.25     25
claude-opus-4-6               5    0.5   6.25     25
claude-opus-4-7               5    0.5   6.25     25
claude-opus-4-8               5    0.5   6.25     25
claude-opus-5                 5    0.5   6.25     25
claude-opus-5-5               4    0.2      5     20
claude-sonnet-4-0             3    0.3   3.75     15
claude-sonnet-4               3    0.3   3.75     15
claude-sonnet-4-5             3    0.3   3.75     15
claude-sonnet-4-6             3    0.3   3.75     15
claude-sonnet-5               2    0.2    2.5     10
claude-sonnet-5-5             2    0.1    2.5     10
"""


def _price(figures: list[str]) -> Price:
    return Price(*(price_units(Decimal(figure)) for figure in figures))


DEFAULT_PRICES = {name: _price(figures)
                  for name, *figures in map(str.split, _TABLE.strip().splitlines())}

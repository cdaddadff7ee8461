"""The marks that every vocabulary begins with, and their ids.

Their names hold a space, which no piece of text can.
"""

PAD_ID, BOS_ID, EOS_ID, UNK_ID = 0, 1, 2, 3
MARKS = ("< pad >", "< s >", "< /s >", "< unk >")

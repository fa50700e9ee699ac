"""Drafts: guesses of the next tokens that the model checks several at a time.

The sampler's noise belongs to a stream and a position, so the token at a place is a function of the tokens
before it. A pass over guessed tokens therefore samples the very tokens that single steps would, as long as
the guesses are right; the first wrong one ends what is kept. Nothing is rejected by chance and no
distribution is bent: output with drafts equals output without, bit for bit, whatever the drafter says.
"""

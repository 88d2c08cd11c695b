"""How pictures look: a table of `marks` goes in, a drawing comes out, in the one `style`. Labs say what is drawn."""

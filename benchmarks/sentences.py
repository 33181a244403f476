"""The sentences that benchmarks translate: forty of our own, or a model's test set, fetched as its recipe says."""

from __future__ import annotations

from pathlib import Path

from dragoman_model.training.corpus import Pair, pair_lines
from dragoman_model.training.download import fetch, read_text
from dragoman_model.training.recipe import RECIPE_FILE, load_recipe

SENTENCES = """
Good morning, how did you sleep?
The train to Hamburg leaves at ten past seven.
I forgot my umbrella at home.
Can you tell me where the post office is?
She has been learning the piano for six years.
We would like a table for four by the window.
My brother works in a hospital.
It is raining again.
Please close the door behind you.
The children are playing in the garden.
He bought a used car for 3,500 euros last week.
Do you want tea or coffee?
I will call you back as soon as I get home.
The museum is closed on Mondays.
They moved to a smaller town because the rent was too high.
What time does the shop open tomorrow?
My phone is broken, so I could not answer.
This soup needs a little more salt.
He told us a story that nobody believed.
The meeting was moved to Thursday at 2 pm.
Thank you for your help.
I have never seen so many stars in the sky.
She opened the window to let in some fresh air.
If the weather is good, we will go swimming on Sunday.
The old man sat on the bench and fed the birds.
Where did you put the keys?
Our neighbours have two dogs and a cat.
You should see a doctor about that cough.
The book you lent me was better than the film.
There is no milk left in the fridge.
He speaks three languages, but he prefers to write in English.
I am looking for a present for my mother's birthday.
The bridge was built more than a hundred years ago.
Don't worry, everything will be fine.
We waited for an hour, and then we went home without him.
My sister wants to become a teacher.
The bus was late this morning.
Could you speak a little more slowly?
In winter it gets dark before five o'clock.
After dinner she washed the dishes while he read the newspaper.
""".strip().splitlines()


def test_set_pairs(model: Path, count: int) -> list[Pair]:
    """Returns the first ``count`` pairs of the test set that the model's recipe names, from the cache or the network."""
    recipe = load_recipe(model / RECIPE_FILE)

    def read(name: str) -> str:
        download = recipe.download(name)
        return read_text(download, fetch(download))

    return pair_lines(read(recipe.corpus.test_source), read(recipe.corpus.test_target), recipe.corpus)[:count]

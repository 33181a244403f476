"""From a recipe to a trained model: data, vocabulary, training, evaluation."""

"""A library of videos and pictures that is indexed once and searched by sentence, by clip and by concept."""

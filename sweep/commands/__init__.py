"""What commands print: text and JSON made from the model, a study or a results folder."""

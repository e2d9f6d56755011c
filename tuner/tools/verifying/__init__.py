"""`tuner verify`: whether the speeds that a study has measured still hold."""

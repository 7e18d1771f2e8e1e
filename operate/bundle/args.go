package bundle

func (s *Settings) arguments(id KeyID, at Place) []string { return nil }

package engine

// SetMaxClusters changes how many clusters are remembered, so that a test needs
// no thousands of elections. HA must be on.
func (e *Engine) SetMaxClusters(n int) { e.replicas.elections.limit = n }

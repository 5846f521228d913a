package read

// CheckAnswerBytes says whether an answer in one block may have n bytes.
func CheckAnswerBytes(maxSamples, n int) error {
	return (&samplesEncoder{maxSamples: maxSamples}).checkBytes(n)
}

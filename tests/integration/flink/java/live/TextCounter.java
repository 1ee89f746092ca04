/** {@link LiveCounter} as somebody changed it who did not think of its state: the count is a text. */
public class TextCounter {
    public static void main(String[] arguments) throws Exception {
        LiveCounter.main(new String[] {arguments[0], "text"});
    }
}
